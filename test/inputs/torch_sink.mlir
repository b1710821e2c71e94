// kernels: 1
// PyTorch: softmax(cat([scores, sink], -1))[:, :-1] @ v, an attention sink joined to the scores
#map = affine_map<(d0, d1) -> (d1)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0, d1) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
module {
  func.func @main(%arg0: tensor<6x37xf32>, %arg1: tensor<37x8xf32>, %arg2: tensor<1xf32>) -> tensor<6x8xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0xFF800000 : f32
    %cst_0 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<6x1xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%arg2 : tensor<1xf32>) outs(%0 : tensor<6x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<6x1xf32>
    %concat = tensor.concat dim(1) %arg0, %1 : (tensor<6x37xf32>, tensor<6x1xf32>) -> tensor<6x38xf32>
    %2 = tensor.empty() : tensor<6xi64>
    %3 = linalg.fill ins(%c0_i64 : i64) outs(%2 : tensor<6xi64>) -> tensor<6xi64>
    %4 = tensor.empty() : tensor<6xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<6xf32>) -> tensor<6xf32>
    %6:2 = linalg.generic {indexing_maps = [#map1, #map2, #map2], iterator_types = ["parallel", "reduction"]} ins(%concat : tensor<6x38xf32>) outs(%5, %3 : tensor<6xf32>, tensor<6xi64>) {
    ^bb0(%in: f32, %out: f32, %out_1: i64):
      %16 = linalg.index 1 : index
      %17 = arith.index_cast %16 : index to i64
      %18 = arith.maximumf %in, %out : f32
      %19 = arith.cmpf ogt, %in, %out : f32
      %20 = arith.select %19, %17, %out_1 : i64
      linalg.yield %18, %20 : f32, i64
    } -> (tensor<6xf32>, tensor<6xi64>)
    %expanded = tensor.expand_shape %6#0 [[0, 1]] output_shape [6, 1] : tensor<6xf32> into tensor<6x1xf32>
    %7 = tensor.empty() : tensor<6x38xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%concat, %expanded : tensor<6x38xf32>, tensor<6x1xf32>) outs(%7 : tensor<6x38xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %16 = arith.subf %in, %in_1 : f32
      linalg.yield %16 : f32
    } -> tensor<6x38xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<6x38xf32>) outs(%7 : tensor<6x38xf32>) {
    ^bb0(%in: f32, %out: f32):
      %16 = math.exp %in : f32
      linalg.yield %16 : f32
    } -> tensor<6x38xf32>
    %10 = linalg.fill ins(%cst_0 : f32) outs(%0 : tensor<6x1xf32>) -> tensor<6x1xf32>
    %11 = linalg.generic {indexing_maps = [#map1, #map3], iterator_types = ["parallel", "reduction"]} ins(%9 : tensor<6x38xf32>) outs(%10 : tensor<6x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %16 = arith.addf %in, %out : f32
      linalg.yield %16 : f32
    } -> tensor<6x1xf32>
    %12 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel"]} ins(%9, %11 : tensor<6x38xf32>, tensor<6x1xf32>) outs(%7 : tensor<6x38xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %16 = arith.divf %in, %in_1 : f32
      linalg.yield %16 : f32
    } -> tensor<6x38xf32>
    %extracted_slice = tensor.extract_slice %12[0, 0] [6, 37] [1, 1] : tensor<6x38xf32> to tensor<6x37xf32>
    %13 = tensor.empty() : tensor<6x8xf32>
    %14 = linalg.fill ins(%cst_0 : f32) outs(%13 : tensor<6x8xf32>) -> tensor<6x8xf32>
    %15 = linalg.matmul ins(%extracted_slice, %arg1 : tensor<6x37xf32>, tensor<37x8xf32>) outs(%14 : tensor<6x8xf32>) -> tensor<6x8xf32>
    return %15 : tensor<6x8xf32>
  }
}

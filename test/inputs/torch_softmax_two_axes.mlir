// kernels: 1
// PyTorch: exp(x - x.amax((1, 2))) / sum over (1, 2)
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
module {
  func.func @main(%arg0: tensor<3x5x7xf32>) -> tensor<3x5x7xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0xFF800000 : f32
    %cst_0 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<3x5xi64>
    %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<3x5xi64>) -> tensor<3x5xi64>
    %2 = tensor.empty() : tensor<3x5xf32>
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<3x5xf32>) -> tensor<3x5xf32>
    %4:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg0 : tensor<3x5x7xf32>) outs(%3, %1 : tensor<3x5xf32>, tensor<3x5xi64>) {
    ^bb0(%in: f32, %out: f32, %out_2: i64):
      %17 = linalg.index 2 : index
      %18 = arith.index_cast %17 : index to i64
      %19 = arith.maximumf %in, %out : f32
      %20 = arith.cmpf ogt, %in, %out : f32
      %21 = arith.select %20, %18, %out_2 : i64
      linalg.yield %19, %21 : f32, i64
    } -> (tensor<3x5xf32>, tensor<3x5xi64>)
    %expanded = tensor.expand_shape %4#0 [[0], [1, 2]] output_shape [3, 5, 1] : tensor<3x5xf32> into tensor<3x5x1xf32>
    %5 = tensor.empty() : tensor<3x1xi64>
    %6 = linalg.fill ins(%c0_i64 : i64) outs(%5 : tensor<3x1xi64>) -> tensor<3x1xi64>
    %7 = tensor.empty() : tensor<3x1xf32>
    %8 = linalg.fill ins(%cst : f32) outs(%7 : tensor<3x1xf32>) -> tensor<3x1xf32>
    %9:2 = linalg.generic {indexing_maps = [#map, #map2, #map2], iterator_types = ["parallel", "reduction", "parallel"]} ins(%expanded : tensor<3x5x1xf32>) outs(%8, %6 : tensor<3x1xf32>, tensor<3x1xi64>) {
    ^bb0(%in: f32, %out: f32, %out_2: i64):
      %17 = linalg.index 1 : index
      %18 = arith.index_cast %17 : index to i64
      %19 = arith.maximumf %in, %out : f32
      %20 = arith.cmpf ogt, %in, %out : f32
      %21 = arith.select %20, %18, %out_2 : i64
      linalg.yield %19, %21 : f32, i64
    } -> (tensor<3x1xf32>, tensor<3x1xi64>)
    %expanded_1 = tensor.expand_shape %9#0 [[0, 1], [2]] output_shape [3, 1, 1] : tensor<3x1xf32> into tensor<3x1x1xf32>
    %10 = tensor.empty() : tensor<3x5x7xf32>
    %11 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0, %expanded_1 : tensor<3x5x7xf32>, tensor<3x1x1xf32>) outs(%10 : tensor<3x5x7xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %17 = arith.subf %in, %in_2 : f32
      linalg.yield %17 : f32
    } -> tensor<3x5x7xf32>
    %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%11 : tensor<3x5x7xf32>) outs(%10 : tensor<3x5x7xf32>) {
    ^bb0(%in: f32, %out: f32):
      %17 = math.exp %in : f32
      linalg.yield %17 : f32
    } -> tensor<3x5x7xf32>
    %13 = tensor.empty() : tensor<3x1x1xf32>
    %14 = linalg.fill ins(%cst_0 : f32) outs(%13 : tensor<3x1x1xf32>) -> tensor<3x1x1xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map3], iterator_types = ["parallel", "reduction", "reduction"]} ins(%12 : tensor<3x5x7xf32>) outs(%14 : tensor<3x1x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %17 = arith.addf %in, %out : f32
      linalg.yield %17 : f32
    } -> tensor<3x1x1xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%12, %15 : tensor<3x5x7xf32>, tensor<3x1x1xf32>) outs(%10 : tensor<3x5x7xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %17 = arith.divf %in, %in_2 : f32
      linalg.yield %17 : f32
    } -> tensor<3x5x7xf32>
    return %16 : tensor<3x5x7xf32>
  }
}

// kernels: 1
// PyTorch: logsumexp of scores of heads that are joined from two parts, as in latent attention
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> ()>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0) -> (d0)>
module {
  func.func @main(%arg0: tensor<9x16xf32>, %arg1: tensor<9x5xf32>, %arg2: tensor<21x16xf32>, %arg3: tensor<21x5xf32>) -> tensor<9xf32> {
    %cst = arith.constant 0x7FF0000000000000 : f64
    %cst_0 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_2 = arith.constant 0xFF800000 : f32
    %concat = tensor.concat dim(1) %arg0, %arg1 : (tensor<9x16xf32>, tensor<9x5xf32>) -> tensor<9x21xf32>
    %concat_3 = tensor.concat dim(1) %arg2, %arg3 : (tensor<21x16xf32>, tensor<21x5xf32>) -> tensor<21x21xf32>
    %0 = tensor.empty() : tensor<21x21xf32>
    %transposed = linalg.transpose ins(%concat_3 : tensor<21x21xf32>) outs(%0 : tensor<21x21xf32>) permutation = [1, 0] 
    %1 = tensor.empty() : tensor<9x21xf32>
    %2 = linalg.fill ins(%cst_1 : f32) outs(%1 : tensor<9x21xf32>) -> tensor<9x21xf32>
    %3 = linalg.matmul ins(%concat, %transposed : tensor<9x21xf32>, tensor<21x21xf32>) outs(%2 : tensor<9x21xf32>) -> tensor<9x21xf32>
    %4 = tensor.empty() : tensor<9xi64>
    %5 = linalg.fill ins(%c0_i64 : i64) outs(%4 : tensor<9xi64>) -> tensor<9xi64>
    %6 = tensor.empty() : tensor<9xf32>
    %7 = linalg.fill ins(%cst_2 : f32) outs(%6 : tensor<9xf32>) -> tensor<9xf32>
    %8:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%3 : tensor<9x21xf32>) outs(%7, %5 : tensor<9xf32>, tensor<9xi64>) {
    ^bb0(%in: f32, %out: f32, %out_4: i64):
      %20 = linalg.index 1 : index
      %21 = arith.index_cast %20 : index to i64
      %22 = arith.maximumf %in, %out : f32
      %23 = arith.cmpf ogt, %in, %out : f32
      %24 = arith.select %23, %21, %out_4 : i64
      linalg.yield %22, %24 : f32, i64
    } -> (tensor<9xf32>, tensor<9xi64>)
    %expanded = tensor.expand_shape %8#0 [[0, 1]] output_shape [9, 1] : tensor<9xf32> into tensor<9x1xf32>
    %9 = tensor.empty() : tensor<9x1xf32>
    %10 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%expanded : tensor<9x1xf32>) outs(%9 : tensor<9x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = math.absf %in : f32
      linalg.yield %20 : f32
    } -> tensor<9x1xf32>
    %11 = tensor.empty() : tensor<9x1xi1>
    %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%10 : tensor<9x1xf32>) outs(%11 : tensor<9x1xi1>) {
    ^bb0(%in: f32, %out: i1):
      %20 = arith.extf %in : f32 to f64
      %21 = arith.cmpf oeq, %20, %cst : f64
      linalg.yield %21 : i1
    } -> tensor<9x1xi1>
    %13 = linalg.generic {indexing_maps = [#map, #map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%12, %cst_0, %expanded : tensor<9x1xi1>, tensor<f32>, tensor<9x1xf32>) outs(%9 : tensor<9x1xf32>) {
    ^bb0(%in: i1, %in_4: f32, %in_5: f32, %out: f32):
      %20 = arith.select %in, %in_4, %in_5 : f32
      linalg.yield %20 : f32
    } -> tensor<9x1xf32>
    %collapsed = tensor.collapse_shape %13 [[0, 1]] : tensor<9x1xf32> into tensor<9xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%3, %13 : tensor<9x21xf32>, tensor<9x1xf32>) outs(%1 : tensor<9x21xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %20 = arith.subf %in, %in_4 : f32
      linalg.yield %20 : f32
    } -> tensor<9x21xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%14 : tensor<9x21xf32>) outs(%1 : tensor<9x21xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = math.exp %in : f32
      linalg.yield %20 : f32
    } -> tensor<9x21xf32>
    %16 = linalg.fill ins(%cst_1 : f32) outs(%6 : tensor<9xf32>) -> tensor<9xf32>
    %17 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%15 : tensor<9x21xf32>) outs(%16 : tensor<9xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = arith.addf %in, %out : f32
      linalg.yield %20 : f32
    } -> tensor<9xf32>
    %18 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel"]} ins(%17 : tensor<9xf32>) outs(%6 : tensor<9xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = math.log %in : f32
      linalg.yield %20 : f32
    } -> tensor<9xf32>
    %19 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel"]} ins(%18, %collapsed : tensor<9xf32>, tensor<9xf32>) outs(%6 : tensor<9xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %20 = arith.addf %in, %in_4 : f32
      linalg.yield %20 : f32
    } -> tensor<9xf32>
    return %19 : tensor<9xf32>
  }
}

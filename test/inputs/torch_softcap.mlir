// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x11x16:float32, 2x4x11x16:float32).
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @softcap(%arg0: tensor<2x4x7x16xf32>, %arg1: tensor<2x4x11x16xf32>, %arg2: tensor<2x4x11x16xf32>) -> tensor<2x4x7x16xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %cst_2 = arith.constant 2.000000e+01 : f32
    %expanded = tensor.expand_shape %arg1 [[0], [1], [2], [3, 4]] output_shape [2, 4, 11, 16, 1] : tensor<2x4x11x16xf32> into tensor<2x4x11x16x1xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x7x16xf32> into tensor<8x7x16xf32>
    %0 = tensor.empty() : tensor<2x4x16x11x1xf32>
    %transposed = linalg.transpose ins(%expanded : tensor<2x4x11x16x1xf32>) outs(%0 : tensor<2x4x16x11x1xf32>) permutation = [0, 1, 3, 2, 4] 
    %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3, 4]] : tensor<2x4x16x11x1xf32> into tensor<8x16x11xf32>
    %1 = tensor.empty() : tensor<8x7x11xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_3 : tensor<8x7x16xf32>, tensor<8x16x11xf32>) outs(%2 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %expanded_4 = tensor.expand_shape %3 [[0, 1], [2], [3, 4]] output_shape [2, 4, 7, 1, 11] : tensor<8x7x11xf32> into tensor<2x4x7x1x11xf32>
    %4 = tensor.empty() : tensor<2x4x7x11x1xf32>
    %transposed_5 = linalg.transpose ins(%expanded_4 : tensor<2x4x7x1x11xf32>) outs(%4 : tensor<2x4x7x11x1xf32>) permutation = [0, 1, 2, 4, 3] 
    %collapsed_6 = tensor.collapse_shape %transposed_5 [[0], [1], [2], [3, 4]] : tensor<2x4x7x11x1xf32> into tensor<2x4x7x11xf32>
    %5 = tensor.empty() : tensor<2x4x7x11xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%collapsed_6 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = arith.mulf %in, %cst_1 : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = arith.divf %in, %cst_2 : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = math.tanh %in : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = arith.mulf %in, %cst_2 : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %10 = tensor.empty() : tensor<2x4x7xi64>
    %11 = linalg.fill ins(%c0_i64 : i64) outs(%10 : tensor<2x4x7xi64>) -> tensor<2x4x7xi64>
    %12 = tensor.empty() : tensor<2x4x7xf32>
    %13 = linalg.fill ins(%cst_0 : f32) outs(%12 : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
    %14:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%9 : tensor<2x4x7x11xf32>) outs(%13, %11 : tensor<2x4x7xf32>, tensor<2x4x7xi64>) {
    ^bb0(%in: f32, %out: f32, %out_13: i64):
      %25 = linalg.index 3 : index
      %26 = arith.index_cast %25 : index to i64
      %27 = arith.maximumf %in, %out : f32
      %28 = arith.cmpf ogt, %in, %out : f32
      %29 = arith.select %28, %26, %out_13 : i64
      linalg.yield %27, %29 : f32, i64
    } -> (tensor<2x4x7xf32>, tensor<2x4x7xi64>)
    %expanded_7 = tensor.expand_shape %14#0 [[0], [1], [2, 3]] output_shape [2, 4, 7, 1] : tensor<2x4x7xf32> into tensor<2x4x7x1xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9, %expanded_7 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %25 = arith.subf %in, %in_13 : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = math.exp %in : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %17 = tensor.empty() : tensor<2x4x7x1xf32>
    %18 = linalg.fill ins(%cst : f32) outs(%17 : tensor<2x4x7x1xf32>) -> tensor<2x4x7x1xf32>
    %19 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%16 : tensor<2x4x7x11xf32>) outs(%18 : tensor<2x4x7x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %25 = arith.addf %in, %out : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x1xf32>
    %20 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16, %19 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %25 = arith.divf %in, %in_13 : f32
      linalg.yield %25 : f32
    } -> tensor<2x4x7x11xf32>
    %collapsed_8 = tensor.collapse_shape %20 [[0, 1], [2], [3]] : tensor<2x4x7x11xf32> into tensor<8x7x11xf32>
    %collapsed_9 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x4x11x16xf32> into tensor<8x11x16xf32>
    %21 = tensor.empty() : tensor<8x7x16xf32>
    %22 = linalg.fill ins(%cst : f32) outs(%21 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %23 = linalg.batch_matmul ins(%collapsed_8, %collapsed_9 : tensor<8x7x11xf32>, tensor<8x11x16xf32>) outs(%22 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %expanded_10 = tensor.expand_shape %23 [[0, 1], [2], [3, 4]] output_shape [2, 4, 7, 1, 16] : tensor<8x7x16xf32> into tensor<2x4x7x1x16xf32>
    %24 = tensor.empty() : tensor<2x4x7x16x1xf32>
    %transposed_11 = linalg.transpose ins(%expanded_10 : tensor<2x4x7x1x16xf32>) outs(%24 : tensor<2x4x7x16x1xf32>) permutation = [0, 1, 2, 4, 3] 
    %collapsed_12 = tensor.collapse_shape %transposed_11 [[0], [1], [2], [3, 4]] : tensor<2x4x7x16x1xf32> into tensor<2x4x7x16xf32>
    return %collapsed_12 : tensor<2x4x7x16xf32>
  }
}

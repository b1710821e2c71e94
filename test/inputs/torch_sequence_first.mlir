// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x7x4x16:float32, 2x11x4x16:float32, 2x11x4x16:float32).
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @sequence_first(%arg0: tensor<2x7x4x16xf32>, %arg1: tensor<2x11x4x16xf32>, %arg2: tensor<2x11x4x16xf32>) -> tensor<2x7x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %0 = tensor.empty() : tensor<2x4x7x16xf32>
    %transposed = linalg.transpose ins(%arg0 : tensor<2x7x4x16xf32>) outs(%0 : tensor<2x4x7x16xf32>) permutation = [0, 2, 1, 3] 
    %1 = tensor.empty() : tensor<2x4x11x16xf32>
    %transposed_2 = linalg.transpose ins(%arg2 : tensor<2x11x4x16xf32>) outs(%1 : tensor<2x4x11x16xf32>) permutation = [0, 2, 1, 3] 
    %2 = tensor.empty() : tensor<2x4x16x11xf32>
    %transposed_3 = linalg.transpose ins(%arg1 : tensor<2x11x4x16xf32>) outs(%2 : tensor<2x4x16x11xf32>) permutation = [0, 2, 3, 1] 
    %collapsed = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x4x7x16xf32> into tensor<8x7x16xf32>
    %collapsed_4 = tensor.collapse_shape %transposed_3 [[0, 1], [2], [3]] : tensor<2x4x16x11xf32> into tensor<8x16x11xf32>
    %3 = tensor.empty() : tensor<8x7x11xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %5 = linalg.batch_matmul ins(%collapsed, %collapsed_4 : tensor<8x7x16xf32>, tensor<8x16x11xf32>) outs(%4 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %expanded = tensor.expand_shape %5 [[0, 1], [2], [3]] output_shape [2, 4, 7, 11] : tensor<8x7x11xf32> into tensor<2x4x7x11xf32>
    %6 = tensor.empty() : tensor<2x4x7x11xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x4x7x11xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.mulf %in, %cst_1 : f32
      linalg.yield %23 : f32
    } -> tensor<2x4x7x11xf32>
    %8 = tensor.empty() : tensor<2x4x7xi64>
    %9 = linalg.fill ins(%c0_i64 : i64) outs(%8 : tensor<2x4x7xi64>) -> tensor<2x4x7xi64>
    %10 = tensor.empty() : tensor<2x4x7xf32>
    %11 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
    %12:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%7 : tensor<2x4x7x11xf32>) outs(%11, %9 : tensor<2x4x7xf32>, tensor<2x4x7xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %23 = linalg.index 3 : index
      %24 = arith.index_cast %23 : index to i64
      %25 = arith.maximumf %in, %out : f32
      %26 = arith.cmpf ogt, %in, %out : f32
      %27 = arith.select %26, %24, %out_11 : i64
      linalg.yield %25, %27 : f32, i64
    } -> (tensor<2x4x7xf32>, tensor<2x4x7xi64>)
    %expanded_5 = tensor.expand_shape %12#0 [[0], [1], [2, 3]] output_shape [2, 4, 7, 1] : tensor<2x4x7xf32> into tensor<2x4x7x1xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7, %expanded_5 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.subf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x4x7x11xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<2x4x7x11xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = math.exp %in : f32
      linalg.yield %23 : f32
    } -> tensor<2x4x7x11xf32>
    %15 = tensor.empty() : tensor<2x4x7x1xf32>
    %16 = linalg.fill ins(%cst : f32) outs(%15 : tensor<2x4x7x1xf32>) -> tensor<2x4x7x1xf32>
    %17 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%14 : tensor<2x4x7x11xf32>) outs(%16 : tensor<2x4x7x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.addf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<2x4x7x1xf32>
    %18 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14, %17 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.divf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x4x7x11xf32>
    %collapsed_6 = tensor.collapse_shape %18 [[0, 1], [2], [3]] : tensor<2x4x7x11xf32> into tensor<8x7x11xf32>
    %collapsed_7 = tensor.collapse_shape %transposed_2 [[0, 1], [2], [3]] : tensor<2x4x11x16xf32> into tensor<8x11x16xf32>
    %19 = tensor.empty() : tensor<8x7x16xf32>
    %20 = linalg.fill ins(%cst : f32) outs(%19 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %21 = linalg.batch_matmul ins(%collapsed_6, %collapsed_7 : tensor<8x7x11xf32>, tensor<8x11x16xf32>) outs(%20 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %expanded_8 = tensor.expand_shape %21 [[0, 1], [2], [3]] output_shape [2, 4, 7, 16] : tensor<8x7x16xf32> into tensor<2x4x7x16xf32>
    %22 = tensor.empty() : tensor<2x7x4x16xf32>
    %transposed_9 = linalg.transpose ins(%expanded_8 : tensor<2x4x7x16xf32>) outs(%22 : tensor<2x7x4x16xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_10 = tensor.collapse_shape %transposed_9 [[0], [1], [2, 3]] : tensor<2x7x4x16xf32> into tensor<2x7x64xf32>
    return %collapsed_10 : tensor<2x7x64xf32>
  }
}

// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x11x16:float32, 2x4x11x16:float32, 4:float32).
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0, d1) -> (d0, d1)>
#map5 = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
#map6 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map7 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @alibi(%arg0: tensor<2x4x7x16xf32>, %arg1: tensor<2x4x11x16xf32>, %arg2: tensor<2x4x11x16xf32>, %arg3: tensor<4xf32>) -> tensor<2x4x7x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %expanded = tensor.expand_shape %arg1 [[0], [1], [2], [3, 4]] output_shape [2, 4, 11, 16, 1] : tensor<2x4x11x16xf32> into tensor<2x4x11x16x1xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x7x16xf32> into tensor<8x7x16xf32>
    %0 = tensor.empty() : tensor<2x4x16x11x1xf32>
    %transposed = linalg.transpose ins(%expanded : tensor<2x4x11x16x1xf32>) outs(%0 : tensor<2x4x16x11x1xf32>) permutation = [0, 1, 3, 2, 4] 
    %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3, 4]] : tensor<2x4x16x11x1xf32> into tensor<8x16x11xf32>
    %1 = tensor.empty() : tensor<8x7x11xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<8x7x16xf32>, tensor<8x16x11xf32>) outs(%2 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %expanded_3 = tensor.expand_shape %3 [[0, 1], [2], [3, 4]] output_shape [2, 4, 7, 1, 11] : tensor<8x7x11xf32> into tensor<2x4x7x1x11xf32>
    %4 = tensor.empty() : tensor<2x4x7x11x1xf32>
    %transposed_4 = linalg.transpose ins(%expanded_3 : tensor<2x4x7x1x11xf32>) outs(%4 : tensor<2x4x7x11x1xf32>) permutation = [0, 1, 2, 4, 3] 
    %collapsed_5 = tensor.collapse_shape %transposed_4 [[0], [1], [2], [3, 4]] : tensor<2x4x7x11x1xf32> into tensor<2x4x7x11xf32>
    %5 = tensor.empty() : tensor<2x4x7x11xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%collapsed_5 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = arith.mulf %in, %cst_1 : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x11xf32>
    %7 = tensor.empty() : tensor<11xi64>
    %8 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel"]} outs(%7 : tensor<11xi64>) {
    ^bb0(%out: i64):
      %30 = linalg.index 0 : index
      %31 = arith.index_cast %30 : index to i64
      linalg.yield %31 : i64
    } -> tensor<11xi64>
    %expanded_6 = tensor.expand_shape %8 [[0, 1]] output_shape [1, 11] : tensor<11xi64> into tensor<1x11xi64>
    %9 = tensor.empty() : tensor<7xi64>
    %10 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel"]} outs(%9 : tensor<7xi64>) {
    ^bb0(%out: i64):
      %30 = linalg.index 0 : index
      %31 = arith.index_cast %30 : index to i64
      linalg.yield %31 : i64
    } -> tensor<7xi64>
    %expanded_7 = tensor.expand_shape %10 [[0, 1]] output_shape [7, 1] : tensor<7xi64> into tensor<7x1xi64>
    %11 = tensor.empty() : tensor<7x11xi64>
    %12 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel"]} ins(%expanded_6, %expanded_7 : tensor<1x11xi64>, tensor<7x1xi64>) outs(%11 : tensor<7x11xi64>) {
    ^bb0(%in: i64, %in_13: i64, %out: i64):
      %30 = arith.subi %in, %in_13 : i64
      linalg.yield %30 : i64
    } -> tensor<7x11xi64>
    %expanded_8 = tensor.expand_shape %arg3 [[0, 1, 2]] output_shape [4, 1, 1] : tensor<4xf32> into tensor<4x1x1xf32>
    %13 = tensor.empty() : tensor<4x7x11xf32>
    %14 = linalg.generic {indexing_maps = [#map5, #map6, #map7], iterator_types = ["parallel", "parallel", "parallel"]} ins(%expanded_8, %12 : tensor<4x1x1xf32>, tensor<7x11xi64>) outs(%13 : tensor<4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: i64, %out: f32):
      %30 = arith.sitofp %in_13 : i64 to f32
      %31 = arith.mulf %in, %30 : f32
      linalg.yield %31 : f32
    } -> tensor<4x7x11xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6, %14 : tensor<2x4x7x11xf32>, tensor<4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %30 = arith.addf %in, %in_13 : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x11xf32>
    %16 = tensor.empty() : tensor<2x4x7xi64>
    %17 = linalg.fill ins(%c0_i64 : i64) outs(%16 : tensor<2x4x7xi64>) -> tensor<2x4x7xi64>
    %18 = tensor.empty() : tensor<2x4x7xf32>
    %19 = linalg.fill ins(%cst_0 : f32) outs(%18 : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
    %20:2 = linalg.generic {indexing_maps = [#map, #map9, #map9], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<2x4x7x11xf32>) outs(%19, %17 : tensor<2x4x7xf32>, tensor<2x4x7xi64>) {
    ^bb0(%in: f32, %out: f32, %out_13: i64):
      %30 = linalg.index 3 : index
      %31 = arith.index_cast %30 : index to i64
      %32 = arith.maximumf %in, %out : f32
      %33 = arith.cmpf ogt, %in, %out : f32
      %34 = arith.select %33, %31, %out_13 : i64
      linalg.yield %32, %34 : f32, i64
    } -> (tensor<2x4x7xf32>, tensor<2x4x7xi64>)
    %expanded_9 = tensor.expand_shape %20#0 [[0], [1], [2, 3]] output_shape [2, 4, 7, 1] : tensor<2x4x7xf32> into tensor<2x4x7x1xf32>
    %21 = linalg.generic {indexing_maps = [#map, #map10, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %expanded_9 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %30 = arith.subf %in, %in_13 : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x11xf32>
    %22 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<2x4x7x11xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = math.exp %in : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x11xf32>
    %23 = tensor.empty() : tensor<2x4x7x1xf32>
    %24 = linalg.fill ins(%cst : f32) outs(%23 : tensor<2x4x7x1xf32>) -> tensor<2x4x7x1xf32>
    %25 = linalg.generic {indexing_maps = [#map, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%22 : tensor<2x4x7x11xf32>) outs(%24 : tensor<2x4x7x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = arith.addf %in, %out : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x1xf32>
    %26 = linalg.generic {indexing_maps = [#map, #map10, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%22, %25 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%5 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %30 = arith.divf %in, %in_13 : f32
      linalg.yield %30 : f32
    } -> tensor<2x4x7x11xf32>
    %collapsed_10 = tensor.collapse_shape %26 [[0, 1], [2], [3]] : tensor<2x4x7x11xf32> into tensor<8x7x11xf32>
    %collapsed_11 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x4x11x16xf32> into tensor<8x11x16xf32>
    %27 = tensor.empty() : tensor<8x7x16xf32>
    %28 = linalg.fill ins(%cst : f32) outs(%27 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %29 = linalg.batch_matmul ins(%collapsed_10, %collapsed_11 : tensor<8x7x11xf32>, tensor<8x11x16xf32>) outs(%28 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %expanded_12 = tensor.expand_shape %29 [[0, 1], [2], [3]] output_shape [2, 4, 7, 16] : tensor<8x7x16xf32> into tensor<2x4x7x16xf32>
    return %expanded_12 : tensor<2x4x7x16xf32>
  }
}

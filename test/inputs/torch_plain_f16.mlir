// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float16, 2x4x11x16:float16, 2x4x11x16:float16).
// kernels: 1
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @plain_f16(%arg0: tensor<2x4x7x16xf16>, %arg1: tensor<2x4x11x16xf16>, %arg2: tensor<2x4x11x16xf16>) -> tensor<2x4x7x16xf16> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %0 = tensor.empty() : tensor<2x4x16x11xf16>
    %transposed = linalg.transpose ins(%arg1 : tensor<2x4x11x16xf16>) outs(%0 : tensor<2x4x16x11xf16>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x7x16xf16> into tensor<8x7x16xf16>
    %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x4x16x11xf16> into tensor<8x16x11xf16>
    %1 = tensor.empty() : tensor<8x7x11xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<8x7x16xf16>, tensor<8x16x11xf16>) outs(%2 : tensor<8x7x11xf32>) -> tensor<8x7x11xf32>
    %4 = tensor.empty() : tensor<8x7x11xf16>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%3 : tensor<8x7x11xf32>) outs(%4 : tensor<8x7x11xf16>) {
    ^bb0(%in: f32, %out: f16):
      %27 = arith.truncf %in : f32 to f16
      linalg.yield %27 : f16
    } -> tensor<8x7x11xf16>
    %expanded = tensor.expand_shape %5 [[0, 1], [2], [3]] output_shape [2, 4, 7, 11] : tensor<8x7x11xf16> into tensor<2x4x7x11xf16>
    %6 = tensor.empty() : tensor<2x4x7x11xf32>
    %7 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x4x7x11xf16>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f16, %out: f32):
      %27 = arith.extf %in : f16 to f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x11xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7 : tensor<2x4x7x11xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %27 = arith.mulf %in, %cst_1 : f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x11xf32>
    %9 = tensor.empty() : tensor<2x4x7xi64>
    %10 = linalg.fill ins(%c0_i64 : i64) outs(%9 : tensor<2x4x7xi64>) -> tensor<2x4x7xi64>
    %11 = tensor.empty() : tensor<2x4x7xf32>
    %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
    %13:2 = linalg.generic {indexing_maps = [#map1, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%8 : tensor<2x4x7x11xf32>) outs(%12, %10 : tensor<2x4x7xf32>, tensor<2x4x7xi64>) {
    ^bb0(%in: f32, %out: f32, %out_7: i64):
      %27 = linalg.index 3 : index
      %28 = arith.index_cast %27 : index to i64
      %29 = arith.maximumf %in, %out : f32
      %30 = arith.cmpf ogt, %in, %out : f32
      %31 = arith.select %30, %28, %out_7 : i64
      linalg.yield %29, %31 : f32, i64
    } -> (tensor<2x4x7xf32>, tensor<2x4x7xi64>)
    %expanded_3 = tensor.expand_shape %13#0 [[0], [1], [2, 3]] output_shape [2, 4, 7, 1] : tensor<2x4x7xf32> into tensor<2x4x7x1xf32>
    %14 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_3 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %27 = arith.subf %in, %in_7 : f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x11xf32>
    %15 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<2x4x7x11xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %out: f32):
      %27 = math.exp %in : f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x11xf32>
    %16 = tensor.empty() : tensor<2x4x7x1xf32>
    %17 = linalg.fill ins(%cst : f32) outs(%16 : tensor<2x4x7x1xf32>) -> tensor<2x4x7x1xf32>
    %18 = linalg.generic {indexing_maps = [#map1, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<2x4x7x11xf32>) outs(%17 : tensor<2x4x7x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %27 = arith.addf %in, %out : f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x1xf32>
    %19 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %18 : tensor<2x4x7x11xf32>, tensor<2x4x7x1xf32>) outs(%6 : tensor<2x4x7x11xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %27 = arith.divf %in, %in_7 : f32
      linalg.yield %27 : f32
    } -> tensor<2x4x7x11xf32>
    %20 = tensor.empty() : tensor<2x4x7x11xf16>
    %21 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19 : tensor<2x4x7x11xf32>) outs(%20 : tensor<2x4x7x11xf16>) {
    ^bb0(%in: f32, %out: f16):
      %27 = arith.truncf %in : f32 to f16
      linalg.yield %27 : f16
    } -> tensor<2x4x7x11xf16>
    %collapsed_4 = tensor.collapse_shape %21 [[0, 1], [2], [3]] : tensor<2x4x7x11xf16> into tensor<8x7x11xf16>
    %collapsed_5 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x4x11x16xf16> into tensor<8x11x16xf16>
    %22 = tensor.empty() : tensor<8x7x16xf32>
    %23 = linalg.fill ins(%cst : f32) outs(%22 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %24 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<8x7x11xf16>, tensor<8x11x16xf16>) outs(%23 : tensor<8x7x16xf32>) -> tensor<8x7x16xf32>
    %25 = tensor.empty() : tensor<8x7x16xf16>
    %26 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%24 : tensor<8x7x16xf32>) outs(%25 : tensor<8x7x16xf16>) {
    ^bb0(%in: f32, %out: f16):
      %27 = arith.truncf %in : f32 to f16
      linalg.yield %27 : f16
    } -> tensor<8x7x16xf16>
    %expanded_6 = tensor.expand_shape %26 [[0, 1], [2], [3]] output_shape [2, 4, 7, 16] : tensor<8x7x16xf16> into tensor<2x4x7x16xf16>
    return %expanded_6 : tensor<2x4x7x16xf16>
  }
}

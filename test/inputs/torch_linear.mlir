// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x8x16:float32, 4x16:float32, 4:float32).
// kernels: 1
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
module {
  func.func @linear(%arg0: tensor<2x8x16xf32>, %arg1: tensor<4x16xf32>, %arg2: tensor<4xf32>) -> tensor<2x8x4xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2]] : tensor<2x8x16xf32> into tensor<16x16xf32>
    %0 = tensor.empty() : tensor<16x4xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<4x16xf32>) outs(%0 : tensor<16x4xf32>) permutation = [1, 0] 
    %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<16x4xf32>) -> tensor<16x4xf32>
    %2 = linalg.matmul ins(%collapsed, %transposed : tensor<16x16xf32>, tensor<16x4xf32>) outs(%1 : tensor<16x4xf32>) -> tensor<16x4xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%2, %arg2 : tensor<16x4xf32>, tensor<4xf32>) outs(%0 : tensor<16x4xf32>) {
    ^bb0(%in: f32, %in_0: f32, %out: f32):
      %4 = arith.addf %in, %in_0 : f32
      linalg.yield %4 : f32
    } -> tensor<16x4xf32>
    %expanded = tensor.expand_shape %3 [[0, 1], [2]] output_shape [2, 8, 4] : tensor<16x4xf32> into tensor<2x8x4xf32>
    return %expanded : tensor<2x8x4xf32>
  }
}

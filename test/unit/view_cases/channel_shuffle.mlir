// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 4x12xf32
func.func @main(%x: tensor<4x12xf32>) -> tensor<4x12xf32> {
  %c = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a,b)->(a,b)>, affine_map<(a,b)->(a,b)>], iterator_types = ["parallel","parallel"]} ins(%x : tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %m = arith.mulf %i, %c : f32
    linalg.yield %m : f32
  } -> tensor<4x12xf32>
  %z = tensor.expand_shape %y [[0],[1,2]] output_shape [4,3,4] : tensor<4x12xf32> into tensor<4x3x4xf32>
  %f = tensor.empty() : tensor<4x4x3xf32>
  %t = linalg.transpose ins(%z : tensor<4x3x4xf32>) outs(%f : tensor<4x4x3xf32>) permutation = [0,2,1]
  %r = tensor.collapse_shape %t [[0],[1,2]] : tensor<4x4x3xf32> into tensor<4x12xf32>
  return %r : tensor<4x12xf32>
}

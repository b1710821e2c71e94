// Queries, keys and values are slices of one projection; elementwise math directly on tensors.
// kernels: 1
func.func @attention(%qkv: tensor<3x2x4x10x8xf32>) -> tensor<2x4x10x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant dense<0.35355338> : tensor<8x10x10xf32>
  %q5 = tensor.extract_slice %qkv[0, 0, 0, 0, 0] [1, 2, 4, 10, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x10x8xf32> to tensor<2x4x10x8xf32>
  %k5 = tensor.extract_slice %qkv[1, 0, 0, 0, 0] [1, 2, 4, 10, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x10x8xf32> to tensor<1x2x4x10x8xf32>
  %v5 = tensor.extract_slice %qkv[2, 0, 0, 0, 0] [1, 2, 4, 10, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x10x8xf32> to tensor<1x2x4x10x8xf32>
  %q = tensor.collapse_shape %q5 [[0, 1], [2], [3]] : tensor<2x4x10x8xf32> into tensor<8x10x8xf32>
  %k = tensor.collapse_shape %k5 [[0, 1, 2], [3], [4]] : tensor<1x2x4x10x8xf32> into tensor<8x10x8xf32>
  %v = tensor.collapse_shape %v5 [[0, 1, 2], [3], [4]] : tensor<1x2x4x10x8xf32> into tensor<8x10x8xf32>
  %se = tensor.empty() : tensor<8x10x10xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<8x10x10xf32>) -> tensor<8x10x10xf32>
  %te = tensor.empty() : tensor<8x8x10xf32>
  %kt = linalg.transpose ins(%k : tensor<8x10x8xf32>) outs(%te : tensor<8x8x10xf32>) permutation = [0, 2, 1]
  %s = linalg.batch_matmul ins(%q, %kt : tensor<8x10x8xf32>, tensor<8x8x10xf32>) outs(%sf : tensor<8x10x10xf32>) -> tensor<8x10x10xf32>
  %x = arith.mulf %s, %scale : tensor<8x10x10xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<8x10x10xf32>) outs(%se : tensor<8x10x10xf32>) -> tensor<8x10x10xf32>
  %oe = tensor.empty() : tensor<8x10x8xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<8x10x8xf32>) -> tensor<8x10x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<8x10x10xf32>, tensor<8x10x8xf32>) outs(%of : tensor<8x10x8xf32>) -> tensor<8x10x8xf32>
  %r = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [2, 4, 10, 8] : tensor<8x10x8xf32> into tensor<2x4x10x8xf32>
  return %r : tensor<2x4x10x8xf32>
}

// Heads flattened with the batch in memory, but a slope per head: here the two must be told apart.
// kernels: 1
func.func @alibi(%q: tensor<6x7x8xf32>, %k: tensor<6x9x8xf32>, %v: tensor<6x9x8xf32>, %slope: tensor<3xf32>) -> tensor<6x7x8xf32> {
  %zero = arith.constant 0.0 : f32
  %te = tensor.empty() : tensor<6x8x9xf32>
  %kt = linalg.transpose ins(%k : tensor<6x9x8xf32>) outs(%te : tensor<6x8x9xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<6x7x9xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<6x7x9xf32>) -> tensor<6x7x9xf32>
  %s3 = linalg.batch_matmul ins(%q, %kt : tensor<6x7x8xf32>, tensor<6x8x9xf32>) outs(%sf : tensor<6x7x9xf32>) -> tensor<6x7x9xf32>
  %s = tensor.expand_shape %s3 [[0, 1], [2], [3]] output_shape [2, 3, 7, 9] : tensor<6x7x9xf32> into tensor<2x3x7x9xf32>
  %e4 = tensor.empty() : tensor<2x3x7x9xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(b, h, i, j) -> (b, h, i, j)>, affine_map<(b, h, i, j) -> (h)>, affine_map<(b, h, i, j) -> (b, h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %slope : tensor<2x3x7x9xf32>, tensor<3xf32>) outs(%e4 : tensor<2x3x7x9xf32>) {
  ^bb0(%a: f32, %m: f32, %u: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %d = arith.subi %j, %i : index
    %di = arith.index_cast %d : index to i32
    %df = arith.sitofp %di : i32 to f32
    %t = arith.mulf %m, %df : f32
    %r = arith.addf %a, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7x9xf32>
  %p = linalg.softmax dimension(3) ins(%x : tensor<2x3x7x9xf32>) outs(%e4 : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %p3 = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<2x3x7x9xf32> into tensor<6x7x9xf32>
  %oe = tensor.empty() : tensor<6x7x8xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<6x7x8xf32>) -> tensor<6x7x8xf32>
  %o = linalg.batch_matmul ins(%p3, %v : tensor<6x7x9xf32>, tensor<6x9x8xf32>) outs(%of : tensor<6x7x8xf32>) -> tensor<6x7x8xf32>
  return %o : tensor<6x7x8xf32>
}

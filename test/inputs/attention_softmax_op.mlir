// Flattened heads; batch_matmul with a transposed right side, linalg.softmax, run-time sizes.
// kernels: 1
#lhs = affine_map<(n, i, j, d) -> (n, i, d)>
#rhs = affine_map<(n, i, j, d) -> (n, j, d)>
#out = affine_map<(n, i, j, d) -> (n, i, j)>
func.func @attention(%q: tensor<?x?x32xf32>, %k: tensor<?x?x32xf32>, %v: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %q, %c0 : tensor<?x?x32xf32>
  %lq = tensor.dim %q, %c1 : tensor<?x?x32xf32>
  %lk = tensor.dim %k, %c1 : tensor<?x?x32xf32>
  %se = tensor.empty(%n, %lq, %lk) : tensor<?x?x?xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#lhs, #rhs, #out]
      ins(%q, %k : tensor<?x?x32xf32>, tensor<?x?x32xf32>) outs(%sf : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<?x?x?xf32>) outs(%se : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %oe = tensor.empty(%n, %lq) : tensor<?x?x32xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x32xf32>) outs(%of : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  return %o : tensor<?x?x32xf32>
}

// One head, spelled with named ops only: transpose, matmul, reduce, broadcast, sub, exp, div.
// kernels: 1
func.func @attention(%q: tensor<9x8xf32>, %k: tensor<13x8xf32>, %v: tensor<13x5xf32>) -> tensor<9x5xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %te = tensor.empty() : tensor<8x13xf32>
  %kt = linalg.transpose ins(%k : tensor<13x8xf32>) outs(%te : tensor<8x13xf32>) permutation = [1, 0]
  %se = tensor.empty() : tensor<9x13xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<9x13xf32>) -> tensor<9x13xf32>
  %s = linalg.matmul ins(%q, %kt : tensor<9x8xf32>, tensor<8x13xf32>) outs(%sf : tensor<9x13xf32>) -> tensor<9x13xf32>
  %re = tensor.empty() : tensor<9xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%re : tensor<9xf32>) -> tensor<9xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<9x13xf32>) outs(%mf : tensor<9xf32>) dimensions = [1]
  %mb = linalg.broadcast ins(%m : tensor<9xf32>) outs(%se : tensor<9x13xf32>) dimensions = [1]
  %d = linalg.sub ins(%s, %mb : tensor<9x13xf32>, tensor<9x13xf32>) outs(%se : tensor<9x13xf32>) -> tensor<9x13xf32>
  %e = linalg.exp ins(%d : tensor<9x13xf32>) outs(%se : tensor<9x13xf32>) -> tensor<9x13xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%re : tensor<9xf32>) -> tensor<9xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<9x13xf32>) outs(%lf : tensor<9xf32>) dimensions = [1]
  %lb = linalg.broadcast ins(%l : tensor<9xf32>) outs(%se : tensor<9x13xf32>) dimensions = [1]
  %p = linalg.div ins(%e, %lb : tensor<9x13xf32>, tensor<9x13xf32>) outs(%se : tensor<9x13xf32>) -> tensor<9x13xf32>
  %oe = tensor.empty() : tensor<9x5xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<9x5xf32>) -> tensor<9x5xf32>
  %o = linalg.matmul ins(%p, %v : tensor<9x13xf32>, tensor<13x5xf32>) outs(%of : tensor<9x5xf32>) -> tensor<9x5xf32>
  return %o : tensor<9x5xf32>
}

func.func @attn(%q: tensor<4x?x32xf16>, %k: tensor<4x?x32xf16>, %v: tensor<4x?x48xf16>) -> tensor<4x?x48xf16> {
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f32
  %zh = arith.constant 0.0 : f16
  %n = tensor.dim %q, %c1 : tensor<4x?x32xf16>
  %m = tensor.dim %k, %c1 : tensor<4x?x32xf16>
  %kt0 = tensor.empty(%m) : tensor<4x32x?xf16>
  %kt = linalg.transpose ins(%k : tensor<4x?x32xf16>) outs(%kt0 : tensor<4x32x?xf16>) permutation = [0, 2, 1]
  %e = tensor.empty(%n, %m) : tensor<4x?x?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %s = linalg.batch_matmul ins(%q, %kt : tensor<4x?x32xf16>, tensor<4x32x?xf16>) outs(%f : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<4x?x?xf32>) outs(%e : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %eh = tensor.empty(%n, %m) : tensor<4x?x?xf16>
  %ph = linalg.generic {indexing_maps = [affine_map<(b,i,j)->(b,i,j)>, affine_map<(b,i,j)->(b,i,j)>], iterator_types=["parallel","parallel","parallel"]} ins(%p : tensor<4x?x?xf32>) outs(%eh : tensor<4x?x?xf16>) {
  ^bb0(%a: f32, %o: f16):
    %t = arith.truncf %a : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x?x?xf16>
  %o0 = tensor.empty(%n) : tensor<4x?x48xf16>
  %o1 = linalg.fill ins(%zh : f16) outs(%o0 : tensor<4x?x48xf16>) -> tensor<4x?x48xf16>
  %o = linalg.batch_matmul ins(%ph, %v : tensor<4x?x?xf16>, tensor<4x?x48xf16>) outs(%o1 : tensor<4x?x48xf16>) -> tensor<4x?x48xf16>
  return %o : tensor<4x?x48xf16>
}

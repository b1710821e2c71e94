// A running sum and its end: one result has what another is at each step, so the op stays as it is.
// kernels: 4 (a fill, the end of the sum, the op as it was written, twice the sums)
func.func @running(%x: tensor<5x13xf32>) -> (tensor<13x5xf32>, tensor<5xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<13x5xf32>
  %a = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%a : tensor<5xf32>) -> tensor<5xf32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<5x13xf32>) outs(%e, %f : tensor<13x5xf32>, tensor<5xf32>) {
  ^bb0(%v: f32, %o: f32, %s: f32):
    %t = arith.addf %s, %v : f32
    linalg.yield %t, %t : f32, f32
  } -> (tensor<13x5xf32>, tensor<5xf32>)
  %y = linalg.add ins(%r#0, %r#0 : tensor<13x5xf32>, tensor<13x5xf32>) outs(%e : tensor<13x5xf32>) -> tensor<13x5xf32>
  return %y, %r#1 : tensor<13x5xf32>, tensor<5xf32>
}

// Loop i comes back to each element of the first result, which loop j fills.
func.func @again(%x: tensor<4x8xf32>, %start: tensor<f32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %y:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%e, %start : tensor<8xf32>, tensor<f32>) {
  ^bb0(%a: f32, %u: f32, %sum: f32):
    %s = arith.addf %a, %sum : f32
    linalg.yield %s, %s : f32, f32
  } -> (tensor<8xf32>, tensor<f32>)
  return %y#0 : tensor<8xf32>
}

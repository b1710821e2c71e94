#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @rows(%x: tensor<24x64xf32>) -> tensor<24xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<24xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<24xf32>) -> tensor<24xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<24x64xf32>) outs(%f : tensor<24xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %p = arith.mulf %a, %a : f32
    %r = arith.addf %sum, %p : f32
    linalg.yield %r : f32
  } -> tensor<24xf32>
  return %s : tensor<24xf32>
}

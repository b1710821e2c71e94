// The mean of softplus of every row; softplus is a function of this package.
func.func private @softplus(f32) -> f32

func.func @mean_softplus(%x: tensor<64x256xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %length = arith.constant 256.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %means = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x256xf32>) outs(%start : tensor<64xf32>) {
    ^bb0(%a: f32, %sum: f32):
      %b = func.call @softplus(%a) : (f32) -> f32
      %c = arith.divf %b, %length : f32
      %next = arith.addf %sum, %c : f32
      linalg.yield %next : f32
  } -> tensor<64xf32>
  return %means : tensor<64xf32>
}

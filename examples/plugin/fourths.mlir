// The mean of fourth powers of every row: sum over j of x[i, j] ** 4, divided by the length.
func.func @fourths(%x: tensor<64x256xf32>) -> tensor<64xf32> {
  %four = arith.constant 4.0 : f32
  %zero = arith.constant 0.0 : f32
  %length = arith.constant 256.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %sums = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x256xf32>) outs(%start : tensor<64xf32>) {
    ^bb0(%a: f32, %sum: f32):
      %power = math.powf %a, %four : f32
      %next = arith.addf %sum, %power : f32
      linalg.yield %next : f32
  } -> tensor<64xf32>
  %means = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}
      ins(%sums : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%a: f32, %old: f32):
      %mean = arith.divf %a, %length : f32
      linalg.yield %mean : f32
  } -> tensor<64xf32>
  return %means : tensor<64xf32>
}

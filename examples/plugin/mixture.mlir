// The log-likelihood of points under a mixture: over its parts j, the log of the sum of
// exp(x[i, j] + w[j]). `logaddexp` is a combiner of this package; -inf is its identity.
func.func @mixture(%x: tensor<?x?xf32> loc("x"), %w: tensor<?xf32> loc("w")) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %points = tensor.dim %x, %c0 : tensor<?x?xf32>
  %parts = tensor.dim %x, %c1 : tensor<?x?xf32>
  %log = "neptune.reduce"(%points, %parts) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
    %b = "neptune.read"(%w) {map = affine_map<(i, j) -> (j)>} : (tensor<?xf32>) -> f32
    %c = arith.addf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "logaddexp", identity = 0xFF800000 : f32, result_axes = array<i64: 0>,
          domain = array<i64: -9223372036854775808, -9223372036854775808>,
          neptune.axis_names = ["i", "j"]} : (index, index) -> tensor<?xf32>
  return %log : tensor<?xf32>
}

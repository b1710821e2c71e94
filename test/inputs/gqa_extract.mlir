// Shared key heads read by tensor.extract with an unsigned division of the head, and returned
// together with the broadcast keys themselves.
// kernels: 2 (the scores' maximum; the broadcast keys are a result)
func.func @scores(%q: tensor<2x6x4x8xf32>, %k: tensor<2x2x5x8xf32>) -> (tensor<2x6x4xf32>, tensor<2x6x5x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %c3 = arith.constant 3 : index
  %ke = tensor.empty() : tensor<2x6x5x8xf32>
  %kb = linalg.generic {indexing_maps = [affine_map<(b, h, j, d) -> (b, h, j, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%ke : tensor<2x6x5x8xf32>) {
  ^bb0(%u: f32):
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %j = linalg.index 2 : index
    %d = linalg.index 3 : index
    %g = arith.divui %h, %c3 : index
    %v = tensor.extract %k[%b, %g, %j, %d] : tensor<2x2x5x8xf32>
    linalg.yield %v : f32
  } -> tensor<2x6x5x8xf32>
  %se = tensor.empty() : tensor<2x6x4x5xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<2x6x4x5xf32>) -> tensor<2x6x4x5xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, h, i, j, d) -> (b, h, i, d)>, affine_map<(b, h, i, j, d) -> (b, h, j, d)>, affine_map<(b, h, i, j, d) -> (b, h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %kb : tensor<2x6x4x8xf32>, tensor<2x6x5x8xf32>) outs(%sf : tensor<2x6x4x5xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> tensor<2x6x4x5xf32>
  %me = tensor.empty() : tensor<2x6x4xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%me : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<2x6x4x5xf32>) outs(%mf : tensor<2x6x4xf32>) dimensions = [3]
  return %m, %kb : tensor<2x6x4xf32>, tensor<2x6x5x8xf32>
}

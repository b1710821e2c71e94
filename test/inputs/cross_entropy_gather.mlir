// Cross-entropy with the target gathered by tensor.extract from the log-softmax.
// kernels: 1
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @cross_entropy(%x: tensor<5x19xf32>, %t: tensor<5xi64>) -> tensor<5xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %e1 = tensor.empty() : tensor<5xf32>
  %e2 = tensor.empty() : tensor<5x19xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<5xf32>) -> tensor<5xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%e1 : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.reduce { arith.maximumf } ins(%x : tensor<5x19xf32>) outs(%mf : tensor<5xf32>) dimensions = [1]
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<5x19xf32>, tensor<5xf32>) outs(%e2 : tensor<5x19xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x19xf32>
  %e = linalg.exp ins(%d : tensor<5x19xf32>) outs(%e2 : tensor<5x19xf32>) -> tensor<5x19xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<5x19xf32>) outs(%lf : tensor<5xf32>) dimensions = [1]
  %ls = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%d, %l : tensor<5x19xf32>, tensor<5xf32>) outs(%e2 : tensor<5x19xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %g = math.log %b : f32
    %r = arith.subf %a, %g : f32
    linalg.yield %r : f32
  } -> tensor<5x19xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%t : tensor<5xi64>) outs(%e1 : tensor<5xf32>) {
  ^bb0(%a: i64, %u: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %a : i64 to index
    %v = tensor.extract %ls[%i, %j] : tensor<5x19xf32>
    %r = arith.negf %v : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  return %y : tensor<5xf32>
}

// Every reduction keeps its dimension with extent 1, and so does the result.
// kernels: 1
#id = affine_map<(i, j) -> (i, j)>
#keep = affine_map<(i, j) -> (i, 0)>
func.func @logsumexp(%x: tensor<?x37xf32>) -> tensor<?x1xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x37xf32>
  %e1 = tensor.empty(%n) : tensor<?x1xf32>
  %e2 = tensor.empty(%n) : tensor<?x37xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<?x1xf32>) -> tensor<?x1xf32>
  %m = linalg.generic {indexing_maps = [#id, #keep], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x37xf32>) outs(%mf : tensor<?x1xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.maximumf %a, %acc : f32
    linalg.yield %r : f32
  } -> tensor<?x1xf32>
  %e = linalg.generic {indexing_maps = [#id, #keep, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x37xf32>, tensor<?x1xf32>) outs(%e2 : tensor<?x37xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<?x37xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x1xf32>) -> tensor<?x1xf32>
  %l = linalg.generic {indexing_maps = [#id, #keep], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<?x37xf32>) outs(%lf : tensor<?x1xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %a, %acc : f32
    linalg.yield %r : f32
  } -> tensor<?x1xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%m, %l : tensor<?x1xf32>, tensor<?x1xf32>) outs(%e1 : tensor<?x1xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %g = math.log %b : f32
    %r = arith.addf %a, %g : f32
    linalg.yield %r : f32
  } -> tensor<?x1xf32>
  return %y : tensor<?x1xf32>
}

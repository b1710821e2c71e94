// Cross-entropy with the target picked by comparing positions, as one_hot does.
// kernels: 1
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @cross_entropy(%x: tensor<?x?xf32>, %t: tensor<?xi32>) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e1 = tensor.empty(%n) : tensor<?xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.reduce { arith.maximumf } ins(%x : tensor<?x?xf32>) outs(%mf : tensor<?xf32>) dimensions = [1]
  %l = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%lf : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    %r = arith.addf %acc, %e : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %g = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x, %t : tensor<?x?xf32>, tensor<?xi32>) outs(%lf : tensor<?xf32>) {
  ^bb0(%a: f32, %b: i32, %acc: f32):
    %j = linalg.index 1 : index
    %ji = arith.index_cast %j : index to i32
    %hit = arith.cmpi eq, %ji, %b : i32
    %o = arith.uitofp %hit : i1 to f32
    %p = arith.mulf %a, %o : f32
    %r = arith.addf %acc, %p : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%m, %l, %g : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%e1 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %u: f32):
    %lg = math.log %b : f32
    %s = arith.addf %a, %lg : f32
    %r = arith.subf %s, %c : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}

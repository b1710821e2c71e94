#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @ce(%x: tensor<?x1000xf32>, %y: tensor<?xi64>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %x, %c0 : tensor<?x1000xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f0 = linalg.fill ins(%z : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %f1 = linalg.fill ins(%ninf : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.reduce { arith.maximumf } ins(%x : tensor<?x1000xf32>) outs(%f1 : tensor<?xf32>) dimensions = [1]
  %s = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x, %m : tensor<?x1000xf32>, tensor<?xf32>) outs(%f0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    %r = arith.addf %acc, %p : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x, %y : tensor<?x1000xf32>, tensor<?xi64>) outs(%f0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: i64, %acc: f32):
    %j = linalg.index 1 : index
    %ji = arith.index_cast %j : index to i64
    %c = arith.cmpi eq, %ji, %b : i64
    %v = arith.select %c, %a, %z : f32
    %r = arith.addf %acc, %v : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i)->(i)>,affine_map<(i)->(i)>,affine_map<(i)->(i)>,affine_map<(i)->(i)>], iterator_types = ["parallel"]} ins(%s, %m, %t : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %u: f32):
    %l = math.log %a : f32
    %d = arith.addf %l, %b : f32
    %r = arith.subf %d, %c : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  return %o : tensor<?xf32>
}

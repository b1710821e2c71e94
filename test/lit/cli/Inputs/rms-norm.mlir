#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
func.func @rms(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %eps: f32) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %k = tensor.dim %x, %c1 : tensor<?x?xf32>
  %ki = arith.index_cast %k : index to i64
  %kf = arith.sitofp %ki : i64 to f32
  %e = tensor.empty(%n) : tensor<?xf32>
  %f0 = linalg.fill ins(%z : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x?xf32>) outs(%f0 : tensor<?xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %p = arith.mulf %a, %a : f32
    %r = arith.addf %acc, %p : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %e2 = tensor.empty(%n, %k) : tensor<?x?xf32>
  %o = linalg.generic {indexing_maps = [#id, #row, #col, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s, %w : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%e2 : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %u: f32):
    %m = arith.divf %b, %kf : f32
    %q = arith.addf %m, %eps : f32
    %t = math.rsqrt %q : f32
    %y = arith.mulf %a, %t : f32
    %r = arith.mulf %y, %c : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}

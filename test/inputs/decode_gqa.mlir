// One query against a cache of run-time length: the query axis has extent 1; 4 query heads share a
// key head, spelled as a floordiv access.
// kernels: 1
#q = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d) -> (b, h floordiv 4, j, d)>
#s = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#p = affine_map<(b, h, i, d, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, d, j) -> (b, h floordiv 4, j, d)>
#o = affine_map<(b, h, i, d, j) -> (b, h, i, d)>
func.func @decode(%q: tensor<?x8x1x16xf32>, %k: tensor<?x2x?x16xf32>, %v: tensor<?x2x?x16xf32>) -> tensor<?x8x1x16xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %q, %c0 : tensor<?x8x1x16xf32>
  %j = tensor.dim %k, %c2 : tensor<?x2x?x16xf32>
  %se = tensor.empty(%b, %j) : tensor<?x8x1x?xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<?x8x1x?xf32>) -> tensor<?x8x1x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x8x1x16xf32>, tensor<?x2x?x16xf32>) outs(%sf : tensor<?x8x1x?xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %m = arith.mulf %x, %y : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> tensor<?x8x1x?xf32>
  %p = linalg.softmax dimension(3) ins(%s : tensor<?x8x1x?xf32>) outs(%se : tensor<?x8x1x?xf32>) -> tensor<?x8x1x?xf32>
  %oe = tensor.empty(%b) : tensor<?x8x1x16xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x8x1x16xf32>) -> tensor<?x8x1x16xf32>
  %o = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<?x8x1x?xf32>, tensor<?x2x?x16xf32>) outs(%of : tensor<?x8x1x16xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %m = arith.mulf %x, %y : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> tensor<?x8x1x16xf32>
  return %o : tensor<?x8x1x16xf32>
}

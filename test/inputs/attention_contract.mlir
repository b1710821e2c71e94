// linalg.contract, elementwise ops with kinds, half precision in, f32 inside.
// kernels: 1
#q = affine_map<(b, i, h, j, d) -> (b, i, h, d)>
#k = affine_map<(b, i, h, j, d) -> (b, j, h, d)>
#s = affine_map<(b, i, h, j, d) -> (b, h, i, j)>
#p = affine_map<(b, i, h, d, j) -> (b, h, i, j)>
#v = affine_map<(b, i, h, d, j) -> (b, j, h, d)>
#o = affine_map<(b, i, h, d, j) -> (b, i, h, d)>
#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>
func.func @attention(%q: tensor<2x7x3x16xf16>, %k: tensor<2x9x3x16xf16>, %v: tensor<2x9x3x16xf16>) -> tensor<2x7x3x16xf16> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<2x3x7x9xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x7x3x16xf16>, tensor<2x9x3x16xf16>)
      outs(%sf : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %re = tensor.empty() : tensor<2x3x7xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%re : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<2x3x7x9xf32>) outs(%mf : tensor<2x3x7xf32>) dimensions = [3]
  %d = linalg.elementwise kind=#linalg.elementwise_kind<sub> indexing_maps = [#id, #row, #id]
      ins(%s, %m : tensor<2x3x7x9xf32>, tensor<2x3x7xf32>) outs(%se : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %e = linalg.elementwise kind=#linalg.elementwise_kind<exp>
      ins(%d : tensor<2x3x7x9xf32>) outs(%se : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%re : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<2x3x7x9xf32>) outs(%lf : tensor<2x3x7xf32>) dimensions = [3]
  %p = linalg.elementwise kind=#linalg.elementwise_kind<div> indexing_maps = [#id, #row, #id]
      ins(%e, %l : tensor<2x3x7x9xf32>, tensor<2x3x7xf32>) outs(%se : tensor<2x3x7x9xf32>) -> tensor<2x3x7x9xf32>
  %oe = tensor.empty() : tensor<2x7x3x16xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x7x3x16xf32>) -> tensor<2x7x3x16xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%p, %v : tensor<2x3x7x9xf32>, tensor<2x9x3x16xf16>)
      outs(%of : tensor<2x7x3x16xf32>) -> tensor<2x7x3x16xf32>
  %he = tensor.empty() : tensor<2x7x3x16xf16>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%o : tensor<2x7x3x16xf32>) outs(%he : tensor<2x7x3x16xf16>) {
  ^bb0(%in: f32, %u: f16):
    %r = arith.truncf %in : f32 to f16
    linalg.yield %r : f16
  } -> tensor<2x7x3x16xf16>
  return %h : tensor<2x7x3x16xf16>
}

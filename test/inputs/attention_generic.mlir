// Attention as linalg.generic contractions over four and five loops.
// kernels: 1
#q = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d) -> (b, h, j, d)>
#s = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#p = affine_map<(b, h, i, d, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, d, j) -> (b, h, j, d)>
#o = affine_map<(b, h, i, d, j) -> (b, h, i, d)>
#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>
func.func @attention(%q: tensor<2x3x7x16xf32>, %k: tensor<2x3x11x16xf32>, %v: tensor<2x3x11x16xf32>) -> tensor<2x3x7x16xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %se = tensor.empty() : tensor<2x3x7x11xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<2x3x7x11xf32>) -> tensor<2x3x7x11xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x3x7x16xf32>, tensor<2x3x11x16xf32>) outs(%sf : tensor<2x3x7x11xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7x11xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x3x7x11xf32>) outs(%se : tensor<2x3x7x11xf32>) {
  ^bb0(%a: f32, %unused: f32):
    %m = arith.mulf %a, %scale : f32
    linalg.yield %m : f32
  } -> tensor<2x3x7x11xf32>
  %re = tensor.empty() : tensor<2x3x7xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%re : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x3x7x11xf32>) outs(%mf : tensor<2x3x7xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.maximumf %acc, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7xf32>
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %m : tensor<2x3x7x11xf32>, tensor<2x3x7xf32>) outs(%se : tensor<2x3x7x11xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7x11xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%re : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%e : tensor<2x3x7x11xf32>) outs(%lf : tensor<2x3x7xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %acc, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%e, %l : tensor<2x3x7x11xf32>, tensor<2x3x7xf32>) outs(%se : tensor<2x3x7x11xf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7x11xf32>
  %oe = tensor.empty() : tensor<2x3x7x16xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x3x7x16xf32>) -> tensor<2x3x7x16xf32>
  %o = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<2x3x7x11xf32>, tensor<2x3x11x16xf32>) outs(%of : tensor<2x3x7x16xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %m2 = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %m2 : f32
    linalg.yield %r : f32
  } -> tensor<2x3x7x16xf32>
  return %o : tensor<2x3x7x16xf32>
}

// Causal attention, written as plain math: nothing says how to tile or fuse it.
//
//   neptune run examples/attention.mlir --check        compile, run, compare with the unfused program
//   neptune explain examples/attention.mlir            the fused loop nest it becomes
//
// batch 2, 8 heads, 1024 queries and keys, head dimension 64.

#qk  = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#kk  = affine_map<(b, h, i, j, d) -> (b, h, j, d)>
#s   = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#x   = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>
#p   = affine_map<(b, h, i, d, j) -> (b, h, i, j)>
#v   = affine_map<(b, h, i, d, j) -> (b, h, j, d)>
#o   = affine_map<(b, h, i, d, j) -> (b, h, i, d)>

!qkv = tensor<2x8x1024x64xf32>
!scores = tensor<2x8x1024x1024xf32>
!rows = tensor<2x8x1024xf32>

func.func @attention(%q: !qkv, %k: !qkv, %v: !qkv) -> !qkv {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %neg_inf = arith.constant 0xFF800000 : f32
  %scores_init = tensor.empty() : !scores
  %rows_init = tensor.empty() : !rows
  %out_init = tensor.empty() : !qkv
  %scores_zero = linalg.fill ins(%zero : f32) outs(%scores_init : !scores) -> !scores
  %rows_zero = linalg.fill ins(%zero : f32) outs(%rows_init : !rows) -> !rows
  %rows_neg_inf = linalg.fill ins(%neg_inf : f32) outs(%rows_init : !rows) -> !rows
  %out_zero = linalg.fill ins(%zero : f32) outs(%out_init : !qkv) -> !qkv

  // s = q k^T
  %s = linalg.generic {indexing_maps = [#qk, #kk, #s],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : !qkv, !qkv) outs(%scores_zero : !scores) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> !scores

  // x = s / sqrt(d) where j <= i, else -inf
  %x = linalg.generic {indexing_maps = [#x, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : !scores) outs(%scores_init : !scores) {
  ^bb0(%a: f32, %unused: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %seen = arith.cmpi sle, %j, %i : index
    %scaled = arith.mulf %a, %scale : f32
    %r = arith.select %seen, %scaled, %neg_inf : f32
    linalg.yield %r : f32
  } -> !scores

  // p = softmax(x) over j
  %max = linalg.generic {indexing_maps = [#x, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x : !scores) outs(%rows_neg_inf : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.maximumf %acc, %a : f32
    linalg.yield %r : f32
  } -> !rows
  %e = linalg.generic {indexing_maps = [#x, #row, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %max : !scores, !rows) outs(%scores_init : !scores) {
  ^bb0(%a: f32, %m: f32, %unused: f32):
    %d = arith.subf %a, %m : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> !scores
  %sum = linalg.generic {indexing_maps = [#x, #row],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%e : !scores) outs(%rows_zero : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %acc, %a : f32
    linalg.yield %r : f32
  } -> !rows
  %p = linalg.generic {indexing_maps = [#x, #row, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%e, %sum : !scores, !rows) outs(%scores_init : !scores) {
  ^bb0(%a: f32, %l: f32, %unused: f32):
    %r = arith.divf %a, %l : f32
    linalg.yield %r : f32
  } -> !scores

  // out = p v
  %out = linalg.generic {indexing_maps = [#p, #v, #o],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : !scores, !qkv) outs(%out_zero : !qkv) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> !qkv
  return %out : !qkv
}

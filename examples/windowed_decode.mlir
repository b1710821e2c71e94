// Decoding with a sliding window: one query for each of 32 heads, 8 heads of keys and values,
// f16. The query sits at the last position and sees the last 1024 keys.
//
//   neptune run examples/windowed_decode.mlir --size 8192 --check
//   neptune explain examples/windowed_decode.mlir --target sm_90a --size 8192 --html decode.html

#qk  = affine_map<(b, h, j, d) -> (b, h, d)>
#kk  = affine_map<(b, h, j, d) -> (b, h floordiv 4, j, d)>
#s   = affine_map<(b, h, j, d) -> (b, h, j)>
#x   = affine_map<(b, h, j) -> (b, h, j)>
#row = affine_map<(b, h, j) -> (b, h)>
#p   = affine_map<(b, h, d, j) -> (b, h, j)>
#l   = affine_map<(b, h, d, j) -> (b, h)>
#v   = affine_map<(b, h, d, j) -> (b, h floordiv 4, j, d)>
#o   = affine_map<(b, h, d, j) -> (b, h, d)>

!query = tensor<1x32x128xf16>
!cache = tensor<1x8x?x128xf16>
!scores = tensor<1x32x?xf32>
!rows = tensor<1x32xf32>
!out = tensor<1x32x128xf32>

func.func @windowed_decode(%q: !query, %k: !cache, %v: !cache) -> !out {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.08838834764831845 : f32
  %neg_inf = arith.constant 0xFF800000 : f32
  %window = arith.constant 1024 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %k, %c2 : !cache
  %scores_init = tensor.empty(%n) : !scores
  %rows_init = tensor.empty() : !rows
  %out_init = tensor.empty() : !out
  %scores_zero = linalg.fill ins(%zero : f32) outs(%scores_init : !scores) -> !scores
  %rows_zero = linalg.fill ins(%zero : f32) outs(%rows_init : !rows) -> !rows
  %rows_neg_inf = linalg.fill ins(%neg_inf : f32) outs(%rows_init : !rows) -> !rows
  %out_zero = linalg.fill ins(%zero : f32) outs(%out_init : !out) -> !out

  // s = q k^T
  %s = linalg.generic {indexing_maps = [#qk, #kk, #s],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : !query, !cache) outs(%scores_zero : !scores) {
  ^bb0(%a: f16, %b: f16, %acc: f32):
    %wide_a = arith.extf %a : f16 to f32
    %wide_b = arith.extf %b : f16 to f32
    %m = arith.mulf %wide_a, %wide_b : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> !scores

  // x = s / sqrt(d) for the last 1024 keys, else -inf
  %x = linalg.generic {indexing_maps = [#x, #x],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : !scores) outs(%scores_init : !scores) {
  ^bb0(%a: f32, %unused: f32):
    %j = linalg.index 2 : index
    %from_end = arith.subi %n, %j : index
    %seen = arith.cmpi sle, %from_end, %window : index
    %scaled = arith.mulf %a, %scale : f32
    %r = arith.select %seen, %scaled, %neg_inf : f32
    linalg.yield %r : f32
  } -> !scores

  // p = softmax(x) over j
  %max = linalg.generic {indexing_maps = [#x, #row],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : !scores) outs(%rows_neg_inf : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.maximumf %acc, %a : f32
    linalg.yield %r : f32
  } -> !rows
  %e = linalg.generic {indexing_maps = [#x, #row, #x],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %max : !scores, !rows) outs(%scores_init : !scores) {
  ^bb0(%a: f32, %m: f32, %unused: f32):
    %d = arith.subf %a, %m : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> !scores
  %sum = linalg.generic {indexing_maps = [#x, #row],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%e : !scores) outs(%rows_zero : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %acc, %a : f32
    linalg.yield %r : f32
  } -> !rows

  // out = p v
  %out = linalg.generic {indexing_maps = [#p, #l, #v, #o],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%e, %sum, %v : !scores, !rows, !cache) outs(%out_zero : !out) {
  ^bb0(%a: f32, %total: f32, %b: f16, %acc: f32):
    %p = arith.divf %a, %total : f32
    %wide = arith.extf %b : f16 to f32
    %m = arith.mulf %p, %wide : f32
    %r = arith.addf %acc, %m : f32
    linalg.yield %r : f32
  } -> !out
  return %out : !out
}

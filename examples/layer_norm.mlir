// Layer normalisation of 4096 rows of 1024, written as plain math: two passes over each row for
// the mean and the variance, and one for the result. It fuses into one.
//
//   neptune run examples/layer_norm.mlir --check
//   neptune explain examples/layer_norm.mlir --html layer_norm.html

#x    = affine_map<(i, j) -> (i, j)>
#row  = affine_map<(i, j) -> (i)>
#col  = affine_map<(i, j) -> (j)>
#rows = affine_map<(i) -> (i)>

!x = tensor<4096x1024xf32>
!rows = tensor<4096xf32>
!cols = tensor<1024xf32>

func.func @layer_norm(%x: !x, %weight: !cols, %bias: !cols) -> !x {
  %zero = arith.constant 0.0 : f32
  %count = arith.constant 1024.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %init = tensor.empty() : !x
  %rows_init = tensor.empty() : !rows
  %rows_zero = linalg.fill ins(%zero : f32) outs(%rows_init : !rows) -> !rows

  // mean
  %sum = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : !x) outs(%rows_zero : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %acc, %a : f32
    linalg.yield %r : f32
  } -> !rows
  %mean = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel"]}
      ins(%sum : !rows) outs(%rows_init : !rows) {
  ^bb0(%a: f32, %unused: f32):
    %r = arith.divf %a, %count : f32
    linalg.yield %r : f32
  } -> !rows

  // variance: the sum of the squared distances from the mean
  %apart = linalg.generic {indexing_maps = [#x, #row, #x],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : !x, !rows) outs(%init : !x) {
  ^bb0(%a: f32, %m: f32, %unused: f32):
    %r = arith.subf %a, %m : f32
    linalg.yield %r : f32
  } -> !x
  %squares = linalg.generic {indexing_maps = [#x, #row],
      iterator_types = ["parallel", "reduction"]}
      ins(%apart : !x) outs(%rows_zero : !rows) {
  ^bb0(%a: f32, %acc: f32):
    %s = arith.mulf %a, %a : f32
    %r = arith.addf %acc, %s : f32
    linalg.yield %r : f32
  } -> !rows

  // (x - mean) / sqrt(variance + eps) * weight + bias
  %out = linalg.generic {indexing_maps = [#x, #row, #col, #col, #x],
      iterator_types = ["parallel", "parallel"]}
      ins(%apart, %squares, %weight, %bias : !x, !rows, !cols, !cols) outs(%init : !x) {
  ^bb0(%a: f32, %s: f32, %w: f32, %b: f32, %unused: f32):
    %variance = arith.divf %s, %count : f32
    %safe = arith.addf %variance, %eps : f32
    %scale = math.rsqrt %safe : f32
    %normal = arith.mulf %a, %scale : f32
    %scaled = arith.mulf %normal, %w : f32
    %r = arith.addf %scaled, %b : f32
    linalg.yield %r : f32
  } -> !x
  return %out : !x
}

// RMSNorm in bf16 with f32 statistics, then a projection; rows of run-time number.
// kernels: 1
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
func.func @rmsnorm(%x: tensor<?x48xbf16>, %w: tensor<48xbf16>, %a: tensor<48x20xbf16>) -> tensor<?x20xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 48.0 : f32
  %eps = arith.constant 1.0e-6 : f32
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x48xbf16>
  %e1 = tensor.empty(%rows) : tensor<?xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x48xbf16>) outs(%sf : tensor<?xf32>) {
  ^bb0(%v: bf16, %acc: f32):
    %f = arith.extf %v : bf16 to f32
    %q = arith.mulf %f, %f : f32
    %r = arith.addf %acc, %q : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %e2 = tensor.empty(%rows) : tensor<?x48xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #col, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s, %w : tensor<?x48xbf16>, tensor<?xf32>, tensor<48xbf16>) outs(%e2 : tensor<?x48xf32>) {
  ^bb0(%v: bf16, %q: f32, %g: bf16, %u: f32):
    %f = arith.extf %v : bf16 to f32
    %h = arith.extf %g : bf16 to f32
    %mean = arith.divf %q, %n : f32
    %me = arith.addf %mean, %eps : f32
    %i = math.rsqrt %me : f32
    %z = arith.mulf %f, %i : f32
    %r = arith.mulf %z, %h : f32
    linalg.yield %r : f32
  } -> tensor<?x48xf32>
  %oe = tensor.empty(%rows) : tensor<?x20xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x20xf32>) -> tensor<?x20xf32>
  %o = linalg.matmul ins(%y, %a : tensor<?x48xf32>, tensor<48x20xbf16>) outs(%of : tensor<?x20xf32>) -> tensor<?x20xf32>
  return %o : tensor<?x20xf32>
}

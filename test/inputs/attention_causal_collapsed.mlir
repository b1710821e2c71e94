// As compilers of array languages export it: dot_general as collapse + batch_matmul + expand, an
// i32 iota compared for the causal mask, a finite mask value, max against -inf, run-time sizes.
// kernels: 1
#id4 = affine_map<(a, b, c, d) -> (a, b, c, d)>
#row4 = affine_map<(a, b, c, d) -> (a, b, c)>
#ij = affine_map<(a, b, c, d) -> (c, d)>
#id2 = affine_map<(i, j) -> (i, j)>
func.func @attention(%q: tensor<?x4x?x16xf32>, %k: tensor<?x4x?x16xf32>, %v: tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %masked = arith.constant -3.40282347E+38 : f32
  %scale = arith.constant dense<0.25> : tensor<f32>
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %b = tensor.dim %q, %c0 : tensor<?x4x?x16xf32>
  %i = tensor.dim %q, %c2 : tensor<?x4x?x16xf32>
  %j = tensor.dim %k, %c2 : tensor<?x4x?x16xf32>
  %bh = arith.muli %b, %c4 : index
  %q3 = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<?x4x?x16xf32> into tensor<?x?x16xf32>
  %k3 = tensor.collapse_shape %k [[0, 1], [2], [3]] : tensor<?x4x?x16xf32> into tensor<?x?x16xf32>
  %v3 = tensor.collapse_shape %v [[0, 1], [2], [3]] : tensor<?x4x?x16xf32> into tensor<?x?x16xf32>
  %ktE = tensor.empty(%bh, %j) : tensor<?x16x?xf32>
  %kt = linalg.transpose ins(%k3 : tensor<?x?x16xf32>) outs(%ktE : tensor<?x16x?xf32>) permutation = [0, 2, 1]
  %se = tensor.empty(%bh, %i, %j) : tensor<?x?x?xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s3 = linalg.batch_matmul ins(%q3, %kt : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%sf : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = tensor.expand_shape %s3 [[0, 1], [2], [3]] output_shape [%b, 4, %i, %j] : tensor<?x?x?xf32> into tensor<?x4x?x?xf32>
  %e4 = tensor.empty(%b, %i, %j) : tensor<?x4x?x?xf32>
  %x = linalg.generic {indexing_maps = [#id4, affine_map<(a, b, c, d) -> ()>, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %scale : tensor<?x4x?x?xf32>, tensor<f32>) outs(%e4 : tensor<?x4x?x?xf32>) {
  ^bb0(%in: f32, %c: f32, %u: f32):
    %r = arith.mulf %in, %c : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?x?xf32>
  %me = tensor.empty(%i, %j) : tensor<?x?xi1>
  %mask = linalg.generic {indexing_maps = [#id2], iterator_types = ["parallel", "parallel"]} outs(%me : tensor<?x?xi1>) {
  ^bb0(%u: i1):
    %r = linalg.index 0 : index
    %c = linalg.index 1 : index
    %ri = arith.index_cast %r : index to i32
    %ci = arith.index_cast %c : index to i32
    %ok = arith.cmpi sge, %ri, %ci : i32
    linalg.yield %ok : i1
  } -> tensor<?x?xi1>
  %w = linalg.generic {indexing_maps = [#ij, #id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%mask, %x : tensor<?x?xi1>, tensor<?x4x?x?xf32>) outs(%e4 : tensor<?x4x?x?xf32>) {
  ^bb0(%ok: i1, %in: f32, %u: f32):
    %r = arith.select %ok, %in, %masked : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?x?xf32>
  %re = tensor.empty(%b, %i) : tensor<?x4x?xf32>
  %mf = linalg.fill ins(%ninf : f32) outs(%re : tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %m0 = linalg.generic {indexing_maps = [#id4, #row4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%w : tensor<?x4x?x?xf32>) outs(%mf : tensor<?x4x?xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %r = arith.maximumf %acc, %in : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m0 : tensor<?x4x?xf32>) outs(%re : tensor<?x4x?xf32>) {
  ^bb0(%in: f32, %u: f32):
    %r = arith.maximumf %ninf, %in : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?xf32>
  %e = linalg.generic {indexing_maps = [#id4, #row4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %m : tensor<?x4x?x?xf32>, tensor<?x4x?xf32>) outs(%e4 : tensor<?x4x?x?xf32>) {
  ^bb0(%in: f32, %mm: f32, %u: f32):
    %d = arith.subf %in, %mm : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?x?xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%re : tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %l = linalg.generic {indexing_maps = [#id4, #row4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%e : tensor<?x4x?x?xf32>) outs(%lf : tensor<?x4x?xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %r = arith.addf %acc, %in : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?xf32>
  %p = linalg.generic {indexing_maps = [#id4, #row4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%e, %l : tensor<?x4x?x?xf32>, tensor<?x4x?xf32>) outs(%e4 : tensor<?x4x?x?xf32>) {
  ^bb0(%in: f32, %ll: f32, %u: f32):
    %r = arith.divf %in, %ll : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?x?xf32>
  %p3 = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<?x4x?x?xf32> into tensor<?x?x?xf32>
  %oe = tensor.empty(%bh, %i) : tensor<?x?x16xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %o3 = linalg.batch_matmul ins(%p3, %v3 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%of : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %o = tensor.expand_shape %o3 [[0, 1], [2], [3]] output_shape [%b, 4, %i, 16] : tensor<?x?x16xf32> into tensor<?x4x?x16xf32>
  return %o : tensor<?x4x?x16xf32>
}

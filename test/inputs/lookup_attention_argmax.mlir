// A lookup by row, attention over what it finds, and where the largest of each row is: what no nest
// models stays as it was written around a fused kernel.
// kernels: 5 (the lookup, attention, two fills, the argmax)
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @lookup(%table: tensor<11x16xf32>, %ids: tensor<?xi64>, %k: tensor<?x16xf32>,
    %v: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xi64>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i64
  %ninf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %ids, %c0 : tensor<?xi64>
  %m = tensor.dim %k, %c0 : tensor<?x16xf32>
  %e = tensor.empty(%n) : tensor<?x16xf32>
  %x = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?x16xf32>) {
  ^bb0(%a: i64, %u: f32):
    %d = linalg.index 1 : index
    %i = arith.index_cast %a : i64 to index
    %w = tensor.extract %table[%i, %d] : tensor<11x16xf32>
    linalg.yield %w : f32
  } -> tensor<?x16xf32>
  %es = tensor.empty(%n, %m) : tensor<?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(i, j, d) -> (i, d)>,
      affine_map<(i, j, d) -> (j, d)>, affine_map<(i, j, d) -> (i, j)>]
      ins(%x, %k : tensor<?x16xf32>, tensor<?x16xf32>) outs(%fs : tensor<?x?xf32>)
      -> tensor<?x?xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%es : tensor<?x?xf32>)
      -> tensor<?x?xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x16xf32>)
      outs(%fo : tensor<?x16xf32>) -> tensor<?x16xf32>
  %e1 = tensor.empty(%n) : tensor<?xf32>
  %e2 = tensor.empty(%n) : tensor<?xi64>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %af = linalg.fill ins(%none : i64) outs(%e2 : tensor<?xi64>) -> tensor<?xi64>
  %r:2 = linalg.generic {indexing_maps = [#id, #row, #row],
      iterator_types = ["parallel", "reduction"]}
      ins(%o : tensor<?x16xf32>) outs(%mf, %af : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64):
    %j = linalg.index 1 : index
    %ji = arith.index_cast %j : index to i64
    %larger = arith.maximumf %a, %b : f32
    %gt = arith.cmpf ogt, %a, %b : f32
    %at = arith.select %gt, %ji, %c : i64
    linalg.yield %larger, %at : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  return %o, %r#1 : tensor<?x16xf32>, tensor<?xi64>
}

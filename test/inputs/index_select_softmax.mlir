// Rows that are selected by index, as torch writes it (asserts, negative indices count from the end), and
// a softmax of each. The gather is a read of the softmax's pass.
// kernels: 2 (the positions, the softmax)
#row = affine_map<(n, d) -> (n)>
#id = affine_map<(n, d) -> (n, d)>
func.func @rows(%table: tensor<?x24xf32>, %ids: tensor<?xi64>) -> tensor<?x24xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i64
  %n = tensor.dim %ids, %c0 : tensor<?xi64>
  %count = tensor.dim %table, %c0 : tensor<?x24xf32>
  %most = arith.index_cast %count : index to i64
  %e = tensor.empty(%n) : tensor<?x24xf32>
  %x = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<?xi64>) outs(%e : tensor<?x24xf32>) {
  ^bb0(%a: i64, %u: f32):
    %d = linalg.index 1 : index
    %negative = arith.cmpi slt, %a, %zero : i64
    %wrapped = arith.addi %a, %most : i64
    %at = arith.select %negative, %wrapped, %a : i64
    %i = arith.index_cast %at : i64 to index
    %inside = arith.cmpi slt, %i, %count : index
    cf.assert %inside, "index out of range"
    %v = tensor.extract %table[%i, %d] : tensor<?x24xf32>
    linalg.yield %v : f32
  } -> tensor<?x24xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x24xf32>) outs(%e : tensor<?x24xf32>) -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

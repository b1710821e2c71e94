// A lookup by row: the sum reads the rows that the tokens name.
// kernels: 1
func.func @embedding(%table: tensor<11x8xf32>, %ids: tensor<5xi64>) -> tensor<5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x8xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(n, d) -> (n)>, affine_map<(n, d) -> (n, d)>], iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<5xi64>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%a: i64, %u: f32):
    %d = linalg.index 1 : index
    %i = arith.index_cast %a : i64 to index
    %v = tensor.extract %table[%i, %d] : tensor<11x8xf32>
    linalg.yield %v : f32
  } -> tensor<5x8xf32>
  %e1 = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<5xf32>) -> tensor<5xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<5x8xf32>) outs(%f : tensor<5xf32>) dimensions = [1]
  return %s : tensor<5xf32>
}

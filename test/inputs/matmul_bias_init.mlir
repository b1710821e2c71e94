// The product accumulates into a bias that was broadcast: no fill, so the result adds it.
// kernels: 1
func.func @linear(%x: tensor<5x12xf32>, %w: tensor<12x9xf32>, %b: tensor<9xf32>) -> tensor<5x9xf32> {
  %e = tensor.empty() : tensor<5x9xf32>
  %bb = linalg.broadcast ins(%b : tensor<9xf32>) outs(%e : tensor<5x9xf32>) dimensions = [0]
  %y = linalg.matmul ins(%x, %w : tensor<5x12xf32>, tensor<12x9xf32>) outs(%bb : tensor<5x9xf32>) -> tensor<5x9xf32>
  return %y : tensor<5x9xf32>
}

// Attention of one head without scores of its own: softmax of the rows of x, times v.
func.func @weighted(%x: tensor<100x300xf32>, %v: tensor<300x40xf32>) -> tensor<100x40xf32>
    attributes {llvm.emit_c_interface} {
  %p0 = tensor.empty() : tensor<100x300xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<100x300xf32>)
      outs(%p0 : tensor<100x300xf32>) -> tensor<100x300xf32>
  %zero = arith.constant 0.0 : f32
  %r0 = tensor.empty() : tensor<100x40xf32>
  %r1 = linalg.fill ins(%zero : f32) outs(%r0 : tensor<100x40xf32>) -> tensor<100x40xf32>
  %r = linalg.matmul ins(%p, %v : tensor<100x300xf32>, tensor<300x40xf32>)
      outs(%r1 : tensor<100x40xf32>) -> tensor<100x40xf32>
  return %r : tensor<100x40xf32>
}

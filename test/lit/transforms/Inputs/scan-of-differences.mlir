func.func @differences(%x: tensor<9xf32>, %o: tensor<9xf32>, %a: tensor<f32>) -> tensor<9xf32> {
  %s:2 = tm_tensor.scan dimension(0) inclusive(true) ins(%x : tensor<9xf32>)
      outs(%o, %a : tensor<9xf32>, tensor<f32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.subf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<9xf32>, tensor<f32>
  return %s#0 : tensor<9xf32>
}

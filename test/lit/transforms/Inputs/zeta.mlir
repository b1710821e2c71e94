func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %l = chlo.zeta %x, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  return %l : tensor<4xf32>
}

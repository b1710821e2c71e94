func.func @f(%x: f32, %n: tensor<1xindex>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %k = tensor.extract %n[%c0] : tensor<1xindex>
  %e = tensor.empty(%k) : tensor<?xf32>
  return %e : tensor<?xf32>
}

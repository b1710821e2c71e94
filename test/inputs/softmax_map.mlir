// linalg.map and linalg.reduce with regions; the softmax runs over the first dimension.
// kernels: 1
func.func @softmax(%x: tensor<33x6xf32>) -> tensor<33x6xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant -3.40282347E+38 : f32
  %e1 = tensor.empty() : tensor<6xf32>
  %e2 = tensor.empty() : tensor<33x6xf32>
  %mf = linalg.fill ins(%lowest : f32) outs(%e1 : tensor<6xf32>) -> tensor<6xf32>
  %m = linalg.reduce ins(%x : tensor<33x6xf32>) outs(%mf : tensor<6xf32>) dimensions = [0]
    (%a: f32, %acc: f32) {
      %r = arith.maxnumf %a, %acc : f32
      linalg.yield %r : f32
    }
  %mb = linalg.broadcast ins(%m : tensor<6xf32>) outs(%e2 : tensor<33x6xf32>) dimensions = [0]
  %d = linalg.map { arith.subf } ins(%x, %mb : tensor<33x6xf32>, tensor<33x6xf32>) outs(%e2 : tensor<33x6xf32>)
  %e = linalg.map { math.exp } ins(%d : tensor<33x6xf32>) outs(%e2 : tensor<33x6xf32>)
  %lf = linalg.fill ins(%zero : f32) outs(%e1 : tensor<6xf32>) -> tensor<6xf32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<33x6xf32>) outs(%lf : tensor<6xf32>) dimensions = [0]
  %lb = linalg.broadcast ins(%l : tensor<6xf32>) outs(%e2 : tensor<33x6xf32>) dimensions = [0]
  %y = linalg.map { arith.divf } ins(%e, %lb : tensor<33x6xf32>, tensor<33x6xf32>) outs(%e2 : tensor<33x6xf32>)
  return %y : tensor<33x6xf32>
}

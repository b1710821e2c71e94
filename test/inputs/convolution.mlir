// A window access is not an access of a nest: the convolution stays linalg between raised ops.
// kernels: 4 (the fill, tanh, the convolution as it was written, the sum)
func.func @conv(%x: tensor<1x6x6x3xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<1x4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4x4x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %xe = tensor.empty() : tensor<1x6x6x3xf32>
  %t = linalg.tanh ins(%x : tensor<1x6x6x3xf32>) outs(%xe : tensor<1x6x6x3xf32>) -> tensor<1x6x6x3xf32>
  %y = linalg.conv_2d_nhwc_hwcf ins(%t, %w : tensor<1x6x6x3xf32>, tensor<3x3x3x4xf32>) outs(%f : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %e3 = tensor.empty() : tensor<1x4x4xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %r = linalg.reduce { arith.addf } ins(%y : tensor<1x4x4x4xf32>) outs(%f3 : tensor<1x4x4xf32>) dimensions = [3]
  return %r : tensor<1x4x4xf32>
}

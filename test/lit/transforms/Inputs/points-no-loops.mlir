func.func @pack(%x: tensor<8x8xf32>) -> tensor<2x2x4x4xf32> {
  %e = tensor.empty() : tensor<2x2x4x4xf32>
  %y = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [4, 4] into %e
      : tensor<8x8xf32> -> tensor<2x2x4x4xf32>
  return %y : tensor<2x2x4x4xf32>
}

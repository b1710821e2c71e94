// One kernel of a function alone gets sizes; the others keep theirs, or get them behind this.
// RUN: neptune-opt %s --raise-linalg --tile="nest=2 stream=32 rows=8" | filecheck %s --check-prefix=ONE
// RUN: neptune-opt %s --raise-linalg --tile="nest=2 rows=8" --tile=rows=4 | filecheck %s --check-prefix=ALL

func.func @two(%x: tensor<64x256xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<64x256xf32>) outs(%f : tensor<64xf32>)
      dimensions = [1]
  %m = linalg.reduce { arith.maximumf } ins(%x : tensor<64x256xf32>) outs(%f : tensor<64xf32>)
      dimensions = [1]
  return %s, %m : tensor<64xf32>, tensor<64xf32>
}

// ONE:      combiner = "add"
// ONE-NOT:  neptune.tile
// ONE:      combiner = "max"
// ONE-SAME: neptune.tile = array<i64: 8,

// ALL:      combiner = "add"
// ALL-SAME: neptune.tile = array<i64: 4,
// ALL:      combiner = "max"
// ALL-SAME: neptune.tile = array<i64: 8,

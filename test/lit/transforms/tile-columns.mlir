// Tiles of sums over rows on a chip: each thread has 16 bytes of columns of its own, but where these
// would be few programs, and nothing cuts their rows into chunks.
// RUN: neptune-opt %s --tile | filecheck %s
// RUN: neptune-opt %s --tile=chunks=1 | filecheck %s --check-prefix=CUT
module attributes {neptune.chip = "sm_90a"} {

// CHECK-LABEL: func.func @few
// CHECK: neptune.tile = array<i64: 64, 64>
// CUT-LABEL: func.func @few
// CUT: neptune.tile = array<i64: 8, 512>
func.func @few(%x: tensor<256x4096xf32>) -> tensor<4096xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<4096xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<256x4096xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1>,
            domain = array<i64: 256, 4096>, result_axes = array<i64: 1>}
      : (tensor<4096xf32>) -> tensor<4096xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4096xf32>) -> ()
  }, {
  ^bb0(%s: tensor<4096xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4096xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j"], domain = array<i64: 256, 4096>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<4096xf32>
  return %r : tensor<4096xf32>
}

// CHECK-LABEL: func.func @many
// CHECK: neptune.tile = array<i64: 8, 512>
func.func @many(%x: tensor<256x65536xf32>) -> tensor<65536xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<65536xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<256x65536xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1>,
            domain = array<i64: 256, 65536>, result_axes = array<i64: 1>}
      : (tensor<65536xf32>) -> tensor<65536xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<65536xf32>) -> ()
  }, {
  ^bb0(%s: tensor<65536xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<65536xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j"], domain = array<i64: 256, 65536>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}
}

// What somebody chose stands beside what a table says, and instead of it where both say something;
// in tile IR it is said of kernels.
// RUN: env NEPTUNE_TUNING=%S/Inputs/tuned.json neptune-opt %s --tile=warp_groups=1 | filecheck %s --check-prefix=BEFORE
// RUN: env NEPTUNE_TUNING=%S/Inputs/tuned.json neptune-opt %s --tile=warp_groups=1 --set-choices="keeps=0 slots=2" | filecheck %s
// RUN: neptune-opt %s --tile=warp_groups=1 --lower-to-tiles --set-choices=warps=8 | filecheck %s --check-prefix=TILES
// RUN: neptune-opt %s --rolling-update --tile --privatize=chunks=2 --tile --set-choices=narrow=0 --lower-to-tiles | filecheck %s --check-prefix=CHUNKS
// RUN: not neptune-opt %s --set-choices=keeps=2 2>&1 | filecheck %s --check-prefix=RANGE
// RUN: not neptune-opt %s --set-choices=warps=3 2>&1 | filecheck %s --check-prefix=POWER

// BEFORE: neptune.tuned = {slots = 3 : i64}
// CHECK: neptune.tuned = {keeps = 0 : i64, slots = 2 : i64}
// TILES: neptune.kernel = "stream_0", neptune.tuned = {warps = 8 : i64}
// A chunk of a stream is a kernel too.
// CHUNKS: neptune.kernel = "stream_0", neptune.tuned = {narrow = 0 : i64}
// RANGE: error: choice 'keeps' is 2
// RANGE: hint: 0 to 1
// POWER: hint: 0 or a power of two up to 32
module attributes {neptune.chip = "sm_90a"} {
func.func @stream(%x: tensor<512x?xf16>, %y: tensor<?x64xf16>, %n: index) -> tensor<512x64xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<512x64xf32>):
    %s = "neptune.accumulate"(%s0, %n) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, k, j) -> (i, k)>} : (tensor<512x?xf16>) -> f16
      %b = "neptune.read"(%y) {map = affine_map<(i, k, j) -> (k, j)>} : (tensor<?x64xf16>) -> f16
      %f = arith.extf %a : f16 to f32
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: 512, -9223372036854775808, 64>, result_axes = array<i64: 0, 2>}
      : (tensor<512x64xf32>, index) -> tensor<512x64xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<512x64xf32>) -> ()
  }, {
  ^bb0(%s: tensor<512x64xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<512x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "k", "j"], domain = array<i64: 512, -9223372036854775808, 64>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index) -> tensor<512x64xf32>
  return %r : tensor<512x64xf32>
}
}

// Sizes for warp groups: the rule's, or what a table says of the chip that a module is for. Beyond
// sizes it says `neptune.tuned`, and for longer streams it leaves the lengths from which on.
// RUN: neptune-opt %s --tile=warp_groups=1 | filecheck %s --check-prefix=RULE
// RUN: env NEPTUNE_TUNING=%S/Inputs/tuned.json neptune-opt %s --tile=warp_groups=1 | filecheck %s
// RUN: env NEPTUNE_TUNING=%S/Inputs/tuned.json neptune-opt %s --tile=warp_groups=1,length=4096 | filecheck %s --check-prefix=LONG
// RUN: not env NEPTUNE_TUNING=%s neptune-opt %s --tile=warp_groups=1 2>&1 | filecheck %s --check-prefix=DAMAGED

// RULE: neptune.tile = array<i64: 128, 64, 0>
// RULE-NOT: neptune.tuned
// CHECK: neptune.longer = array<i64: 4096>, {{.*}}neptune.tile = array<i64: 128, 96, 0>, neptune.tuned = {slots = 3 : i64}
// LONG: neptune.tile = array<i64: 192, 64, 0>, neptune.tuned = {skew = 0 : i64, turns = 1 : i64}
// DAMAGED: the tuning table '{{.*}}tile-tuned.mlir' cannot be read: Expecting value
// DAMAGED: hint: correct or remove it
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

// Streams that are no rows of a product: a batch, groups, and a reduction of its own.
// RUN: neptune-opt %s --tile | filecheck %s
// RUN: neptune-opt %s --tile=warp_groups=1 | filecheck %s --check-prefix=GROUPS

// All operands have the streamed axis: it numbers products. (The gradient of a bias, over a batch.)
// CHECK-LABEL: func.func @batch
// CHECK: neptune.tile = array<i64: 1, 64, 64, 0>
// GROUPS-LABEL: func.func @batch
// GROUPS: neptune.tile = array<i64: 1, 128, 64, 0>

// Reads run along e, not along the stream h; four of h have the same quotient. (Heads in groups.)
// CHECK-LABEL: func.func @groups
// CHECK: neptune.tile = array<i64: 4, 1, 8, 0>

// Two extents that only a call knows: a tile of both has what a GPU holds. (The gradient of a sink.)
// CHECK-LABEL: func.func @lone
// CHECK: neptune.tile = array<i64: 1, 16, 256>

// Groups of a row that are reduced with it: rows of 16 elements count as such, not as a tile of 256.
// CHECK-LABEL: func.func @pieces
// CHECK: neptune.tile = array<i64: 1, 256, 0>
module attributes {neptune.chip = "sm_90a"} {
func.func @batch(%q: tensor<?x?x64xf16>, %k: tensor<?x?x64xf16>, %b: index, %n: index, %m: index) -> tensor<?x?xf32> {
  %r = "neptune.stream"(%b, %n, %m) ({
  ^bb0(%s0: tensor<?x?xf32>):
    %s = "neptune.reduce"(%b, %n, %m) ({
      %x = "neptune.read"(%q) {map = affine_map<(b, i, j, d) -> (b, i, d)>} : (tensor<?x?x64xf16>) -> f16
      %y = "neptune.read"(%k) {map = affine_map<(b, i, j, d) -> (b, j, d)>} : (tensor<?x?x64xf16>) -> f16
      %f = arith.extf %x : f16 to f32
      %g = arith.extf %y : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1, 2>} : (index, index, index) -> tensor<?x?x?xf32>
    %t = "neptune.accumulate"(%s0, %b, %n, %m) ({
      %x = "neptune.read"(%s) {map = affine_map<(b, i, j) -> (b, i, j)>} : (tensor<?x?x?xf32>) -> f32
      %e = math.exp %x : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 1, 2>} : (tensor<?x?xf32>, index, index, index) -> tensor<?x?xf32>
    "neptune.produce"(%t) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x?xf32>) -> ()
  }, {
  ^bb0(%t: tensor<?x?xf32>):
    "neptune.produce"(%t) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x?xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["b", "i", "j", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808, 64>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index, index) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
func.func @groups(%x: tensor<16x?x128xf32>, %n: index) -> tensor<4x?x128xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<4x?x128xf32>):
    %t = "neptune.accumulate"(%s0, %n) ({
      %e = "neptune.read"(%x) {map = affine_map<(h, g, j, e) -> (h, j, e)>} : (tensor<16x?x128xf32>) -> f32
      %h = "neptune.index"() {dim = 0 : i64} : () -> index
      %g = "neptune.index"() {dim = 1 : i64} : () -> index
      %four = arith.constant 4 : index
      %zero = arith.constant 0.0 : f32
      %of = arith.floordivsi %h, %four : index
      %mine = arith.cmpi eq, %of, %g : index
      %v = arith.select %mine, %e, %zero : f32
      "neptune.yield"(%v) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2, 3>,
            domain = array<i64: 16, 4, -9223372036854775808, 128>, result_axes = array<i64: 1, 2, 3>} : (tensor<4x?x128xf32>, index) -> tensor<4x?x128xf32>
    "neptune.produce"(%t) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x?x128xf32>) -> ()
  }, {
  ^bb0(%t: tensor<4x?x128xf32>):
    "neptune.produce"(%t) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x?x128xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["h", "g", "j", "e"], domain = array<i64: 16, 4, -9223372036854775808, 128>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index) -> tensor<4x?x128xf32>
  return %r : tensor<4x?x128xf32>
}
func.func @lone(%x: tensor<?x?x?xf32>, %a: index, %b: index, %c: index) -> tensor<?xf32> {
  %r = "neptune.reduce"(%a, %b, %c) ({
    %e = "neptune.read"(%x) {map = affine_map<(h, b, i) -> (b, h, i)>} : (tensor<?x?x?xf32>) -> f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>, domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808>}
    : (index, index, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func @pieces(%x: tensor<1024x512x16xbf16>) -> tensor<1024xbf16> {
  %r = "neptune.reduce"() ({
    %e = "neptune.read"(%x) {map = affine_map<(i, g, j) -> (i, g, j)>} : (tensor<1024x512x16xbf16>) -> bf16
    "neptune.yield"(%e) : (bf16) -> ()
  }, {}) {combiner = "min", identity = 0x7F80 : bf16, result_axes = array<i64: 0>,
          domain = array<i64: 1024, 512, 16>} : () -> tensor<1024xbf16>
  return %r : tensor<1024xbf16>
}
}

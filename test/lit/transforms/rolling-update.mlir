// RUN: neptune-opt %s --inline-maps --defer --rolling-update 2>&1 | filecheck %s

// Plain attention becomes one stream: a max, a corrected sum, a corrected output; the division
// is behind the loop. Nothing here or in the pass says attention.

// CHECK: remark: deferred behind the reduction
// CHECK: remark: fused 3 reductions into one pass over 'l': max; add corrected (exponential); add corrected (exponential)

// CHECK: remark: not fused:

// CHECK-LABEL: func.func @attn
// CHECK: %[[OUT:.*]] = "neptune.stream"
// CHECK-NEXT: ^bb0(%[[M0:.*]]: tensor<2x8x?xf32>, %[[L0:.*]]: tensor<2x8x?xf32>, %[[O0:.*]]: tensor<2x8x?x64xf32>):
// CHECK: %[[S:.*]] = "neptune.reduce"
// CHECK: %[[X:.*]] = "neptune.map"
// CHECK: arith.select
// CHECK: %[[M:.*]] = "neptune.accumulate"(%[[M0]]
// CHECK: combiner = "max"
// CHECK: %[[P:.*]] = "neptune.map"
// CHECK: math.exp
// CHECK: %[[LC:.*]] = "neptune.correct"
// CHECK: "neptune.read"(%[[L0]])
// CHECK: %[[OLD:.*]] = "neptune.old"(%[[M0]])
// CHECK: %[[NEW:.*]] = "neptune.new"(%[[M]])
// CHECK: arith.subf %[[OLD]], %[[NEW]]
// CHECK: form = "exponential"
// CHECK: %[[L:.*]] = "neptune.accumulate"(%[[LC]]
// CHECK: "neptune.read"(%[[P]])
// CHECK: %[[OC:.*]] = "neptune.correct"
// CHECK: "neptune.read"(%[[O0]])
// CHECK: %[[O:.*]] = "neptune.accumulate"(%[[OC]]
// CHECK: "neptune.read"(%[[P]])
// CHECK-NOT: arith.divf
// CHECK: "neptune.produce"(%[[M]], %[[L]], %[[O]])
// CHECK: arith.divf
// CHECK: axis = 3
// CHECK-NOT: neptune.stream
// CHECK: return %[[OUT]]
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
module {
  func.func @attn(%arg0: tensor<2x8x?x64xf32>, %arg1: tensor<2x8x?x64xf32>, %arg2: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
    %c2 = arith.constant 2 : index
    %dim = tensor.dim %arg0, %c2 : tensor<2x8x?x64xf32>
    %c2_0 = arith.constant 2 : index
    %dim_1 = tensor.dim %arg1, %c2_0 : tensor<2x8x?x64xf32>
    %0 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%arg0) {map = #map} : (tensor<2x8x?x64xf32>) -> f32
      %8 = "neptune.read"(%arg1) {map = #map1} : (tensor<2x8x?x64xf32>) -> f32
      %9 = arith.mulf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808, 64>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %1 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.index"() {dim = 3 : i64} : () -> index
      %8 = "neptune.index"() {dim = 2 : i64} : () -> index
      %9 = arith.cmpi sle, %7, %8 : index
      %10 = "neptune.read"(%0) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %cst = arith.constant 1.250000e-01 : f32
      %11 = arith.mulf %10, %cst : f32
      %cst_2 = arith.constant 0xFF800000 : f32
      %12 = arith.select %9, %11, %cst_2 : f32
      "neptune.yield"(%12) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %2 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%1) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      "neptune.yield"(%7) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, identity = 0xFF800000 : f32, result_axes = array<i64: 0, 1, 2>} : (index, index) -> tensor<2x8x?xf32>
    %3 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.read"(%1) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%2) {map = #map3} : (tensor<2x8x?xf32>) -> f32
      %9 = arith.subf %7, %8 : f32
      %10 = math.exp %9 : f32
      "neptune.yield"(%10) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %4 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%3) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      "neptune.yield"(%7) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2>} : (index, index) -> tensor<2x8x?xf32>
    %5 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.read"(%3) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%4) {map = #map3} : (tensor<2x8x?xf32>) -> f32
      %9 = arith.divf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %6 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%5) {map = #map4} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%arg2) {map = #map1} : (tensor<2x8x?x64xf32>) -> f32
      %9 = arith.mulf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808, 64>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2, 4>} : (index, index) -> tensor<2x8x?x64xf32>
    return %6 : tensor<2x8x?x64xf32>
  }
// A body that no rule can re-base: the chain stays apart, and says why.
// CHECK-LABEL: func.func @no_correction
// CHECK: "neptune.reduce"
// CHECK: "neptune.reduce"
// CHECK-NOT: neptune.stream
func.func @no_correction(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %t = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %r = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%t) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %z = arith.constant -1.0 : f32
    %e = arith.maximumf %d, %z : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %r : tensor<4xf32>
}
}

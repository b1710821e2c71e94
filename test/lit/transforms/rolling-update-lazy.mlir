// RUN: neptune-opt %s --rolling-update=rescale-bound=8 --verify-corrections 2>&1 | filecheck %s

// Lazy rescale: a second maximum, of the data rounded up to multiples of the bound, is what the
// sum refers to; it is brought to the maximum itself once, in the finish.

// CHECK: remark: fused 2 reductions into one pass over 'j': max; max, added by the solver; add corrected (exponential)
// CHECK: remark: 5 obligations proved
// CHECK: ^bb0(%[[M0:.*]]: tensor<4xf32>, %[[T0:.*]]: tensor<4xf32>, %[[L0:.*]]: tensor<4xf32>):
// CHECK: %[[M:.*]] = "neptune.accumulate"(%[[M0]])
// CHECK: %[[T:.*]] = "neptune.accumulate"(%[[T0]])
// CHECK: math.ceil
// CHECK: %[[C:.*]] = "neptune.correct"
// CHECK: "neptune.read"(%[[L0]])
// CHECK: "neptune.old"(%[[T0]])
// CHECK: "neptune.new"(%[[T]])
// CHECK: "neptune.accumulate"(%[[C]])
// CHECK: "neptune.produce"
// CHECK: arith.cmpf une
// CHECK: math.exp
// CHECK: math.log
func.func @logsumexp(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %b = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %c = math.log %b : f32
    %d = arith.addf %a, %c : f32
    "neptune.yield"(%d) : (f32) -> ()
  }) {domain = array<i64: 4>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// RUN: neptune-opt %s --defer 2>&1 | filecheck %s

// CHECK: defer.mlir:{{[0-9]+}}:{{[0-9]+}}: remark: deferred behind the reduction

// CHECK-LABEL: func.func @weighted
// CHECK: %[[SUM:.*]] = "neptune.reduce"
// CHECK-NOT: arith.divf
// CHECK: combiner = "add"
// CHECK: %[[OUT:.*]] = "neptune.map"
// CHECK: %[[S:.*]] = "neptune.read"(%[[SUM]])
// CHECK: %[[L:.*]] = "neptune.read"(%arg1)
// CHECK: arith.divf %[[S]], %[[L]]
// CHECK: return %[[OUT]]
func.func @weighted(%p: tensor<4x8xf32>, %l: tensor<4xf32>, %v: tensor<8xf32>) -> tensor<4xf32> {
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%l) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %c = "neptune.read"(%v) {map = affine_map<(i, j) -> (j)>} : (tensor<8xf32>) -> f32
    %d = arith.divf %a, %b : f32
    %e = arith.mulf %d, %c : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %o : tensor<4xf32>
}

// Nothing moves out of a maximum.
// CHECK-LABEL: func.func @maximum
// CHECK: "neptune.reduce"
// CHECK: arith.divf
// CHECK-NOT: neptune.map
func.func @maximum(%p: tensor<4x8xf32>, %l: tensor<4xf32>) -> tensor<4xf32> {
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%l) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.divf %a, %b : f32
    "neptune.yield"(%d) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %o : tensor<4xf32>
}

// A condition on the row leaves the sum: the row is set to 0 once, behind it.
// CHECK-LABEL: func.func @zeroed
// CHECK: %[[SUM:.*]] = "neptune.reduce"
// CHECK-NOT: arith.select
// CHECK: combiner = "add"
// CHECK: %[[OUT:.*]] = "neptune.map"
// CHECK: arith.select
// CHECK: return %[[OUT]]
func.func @zeroed(%p: tensor<4x8xf32>, %none: tensor<4xi1>, %v: tensor<8xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%none) {map = affine_map<(i, j) -> (i)>} : (tensor<4xi1>) -> i1
    %c = "neptune.read"(%v) {map = affine_map<(i, j) -> (j)>} : (tensor<8xf32>) -> f32
    %d = arith.select %b, %zero, %a : f32
    %e = arith.mulf %d, %c : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %o : tensor<4xf32>
}

// A factor that keeps the sum in range stays: x * x leaves it from 1e19 on, (x / max |x|)^2 never.
// CHECK-LABEL: func.func @scaled
// CHECK: combiner = "max"
// CHECK: arith.divf
// CHECK: combiner = "add"
// CHECK-NOT: neptune.map
// CHECK: return
func.func @scaled(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = math.absf %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.divf %a, %b : f32
    %e = arith.mulf %d, %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %o : tensor<4xf32>
}

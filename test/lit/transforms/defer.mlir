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

// A mean over a length of the call: the number it divides by is compared under the name it has now.
// CHECK-LABEL: func.func @by_a_length
// CHECK: combiner = "add"
// CHECK: combiner = "add"
// CHECK: arith.divf
// CHECK: return
func.func @by_a_length(%x: tensor<4x6x?xf32>) -> tensor<4x2xf32> {
  %two = arith.constant 2 : index
  %b = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %w = arith.constant dense<3.0> : tensor<2x6xf32>
  %n = tensor.dim %x, %two : tensor<4x6x?xf32>
  %s = "neptune.reduce"(%n) ({
    %v = "neptune.read"(%x) {map = affine_map<(i, k, n) -> (i, k, n)>} : (tensor<4x6x?xf32>) -> f32
    "neptune.yield"(%v) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 4, 6, -9223372036854775808>, identity = 0.0 : f32,
          result_axes = array<i64: 0, 1>} : (index) -> tensor<4x6xf32>
  %m = arith.index_cast %n : index to i64
  %mean = "neptune.map"() ({
    %v = "neptune.read"(%s) {map = affine_map<(i, k) -> (i, k)>} : (tensor<4x6xf32>) -> f32
    %f = arith.sitofp %m : i64 to f32
    %q = arith.divf %v, %f : f32
    "neptune.yield"(%q) : (f32) -> ()
  }) {domain = array<i64: 4, 6>, result_axes = array<i64: 0, 1>} : () -> tensor<4x6xf32>
  %p = "neptune.reduce"() ({
    %v = "neptune.read"(%mean) {map = affine_map<(i, j, k) -> (i, k)>} : (tensor<4x6xf32>) -> f32
    %f = "neptune.read"(%w) {map = affine_map<(i, j, k) -> (j, k)>} : (tensor<2x6xf32>) -> f32
    %q = arith.mulf %v, %f : f32
    "neptune.yield"(%q) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 4, 2, 6>, identity = 0.0 : f32,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x2xf32>
  %y = "neptune.map"() ({
    %v = "neptune.read"(%p) {map = affine_map<(i, k) -> (i, k)>} : (tensor<4x2xf32>) -> f32
    %f = "neptune.read"(%b) {map = affine_map<(i, j) -> (j)>} : (tensor<2xf32>) -> f32
    %q = arith.addf %v, %f : f32
    "neptune.yield"(%q) : (f32) -> ()
  }) {domain = array<i64: 4, 2>, result_axes = array<i64: 0, 1>} : () -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// RUN: neptune-opt %s --unit-reductions | filecheck %s

// A row of one element is its maximum.
// CHECK-LABEL: @rows
// CHECK-NOT: neptune.reduce
// CHECK: "neptune.map"(%{{.*}}) ({
// CHECK: "neptune.read"(%arg0) {map = #[[AT:.*]]} : (tensor<?x1xf32>) -> f32
// CHECK: result_axes = array<i64: 0>} : (index) -> tensor<?xf32>
func.func @rows(%x: tensor<?x1xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x1xf32>
  %m = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x1xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", domain = array<i64: -9223372036854775808, 1>,
          identity = 0xFF800000 : f32, result_axes = array<i64: 0>} : (index) -> tensor<?xf32>
  return %m : tensor<?xf32>
}

// The result has its axes in another order than the loops.
// CHECK-LABEL: @turned
// CHECK-NOT: neptune.reduce
// CHECK: domain = array<i64: 5, 3>, result_axes = array<i64: 0, 1>} : () -> tensor<5x3xf32>
func.func @turned(%x: tensor<3x1x5xf32>) -> tensor<5x3xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, j, k)>} : (tensor<3x1x5xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 3, 1, 5>,
          identity = 0.0 : f32, result_axes = array<i64: 2, 0>} : () -> tensor<5x3xf32>
  return %m : tensor<5x3xf32>
}

// A reduction over two elements stays, whatever else it is over.
// CHECK-LABEL: @more
// CHECK: neptune.reduce
func.func @more(%x: tensor<3x1x2xf32>) -> tensor<3xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, j, k)>} : (tensor<3x1x2xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 3, 1, 2>,
          identity = 0.0 : f32, result_axes = array<i64: 0>} : () -> tensor<3xf32>
  return %m : tensor<3xf32>
}

// A sum of what products make, over the axis that numbers them, stays.
// CHECK-LABEL: @products
// CHECK: neptune.reduce
// CHECK: neptune.reduce
func.func @products(%x: tensor<1x4x8xf32>, %y: tensor<1x6x8xf32>) -> tensor<4x6xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(b, i, j, k) -> (b, i, k)>} : (tensor<1x4x8xf32>) -> f32
    %c = "neptune.read"(%y) {map = affine_map<(b, i, j, k) -> (b, j, k)>} : (tensor<1x6x8xf32>) -> f32
    %p = arith.mulf %a, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 1, 4, 6, 8>,
          identity = 0.0 : f32, result_axes = array<i64: 0, 1, 2>} : () -> tensor<1x4x6xf32>
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = affine_map<(b, i, j) -> (b, i, j)>} : (tensor<1x4x6xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", domain = array<i64: 1, 4, 6>,
          identity = 0.0 : f32, result_axes = array<i64: 1, 2>} : () -> tensor<4x6xf32>
  return %m : tensor<4x6xf32>
}

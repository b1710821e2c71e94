// RUN: neptune-opt %s --inline-maps | filecheck %s

// A map goes into the reductions that read it, with its accesses moved to the reader's loops.
// CHECK-LABEL: func.func @scaled_max
// CHECK-NOT: neptune.map
// CHECK: "neptune.reduce"
// CHECK-NEXT: %[[A:.*]] = "neptune.read"(%arg0) {map = #[[T:.*]]} : (tensor<8x4xf32>) -> f32
// CHECK: %[[C:.*]] = arith.constant 5.000000e-01 : f32
// CHECK-NEXT: arith.mulf %[[A]], %[[C]] : f32
// CHECK-NOT: neptune.map
func.func @scaled_max(%x: tensor<8x4xf32>) -> tensor<4xf32> {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (j, i)>} : (tensor<8x4xf32>) -> f32
    %c = arith.constant 0.5 : f32
    %b = arith.mulf %a, %c : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%y) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// A map that is returned stays, and its reader no longer needs it.
// CHECK-LABEL: func.func @kept
// CHECK: %[[Y:.*]] = "neptune.map"
// CHECK: "neptune.reduce"
// CHECK-NEXT: "neptune.read"(%arg0)
// CHECK: math.exp
// CHECK: return %[[Y]]
func.func @kept(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = math.exp %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%y) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %y, %l : tensor<4x8xf32>, tensor<4xf32>
}

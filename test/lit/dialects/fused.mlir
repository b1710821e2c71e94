// Streams, private and global ops verify, print and parse again.
// RUN: neptune-opt %s | neptune-opt - | filecheck %s

// CHECK-LABEL: func.func @streamed
// CHECK:         "neptune.stream"() ({
// CHECK-NEXT:    ^bb0(%[[OLD:.*]]: tensor<4xf32>):
// CHECK-NEXT:      "neptune.accumulate"(%[[OLD]]) ({
// CHECK:           "neptune.produce"
// CHECK:         axis_names = ["i", "j"]
func.func @streamed(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%i: index, %j: index):
    %c = arith.cmpi sle, %j, %i : index
    "neptune.yield"(%c) : (i1) -> ()
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, neptune.tile = array<i64: 2, 4>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// CHECK-LABEL: func.func @split
// CHECK:         %[[P:.*]] = "neptune.private"() ({
// CHECK-NEXT:      "neptune.stream"() ({
// CHECK:         }) {chunks = 2 : i64
// CHECK:         "neptune.global"() ({
// CHECK-NEXT:      "neptune.reduce"() ({
// CHECK-NEXT:        "neptune.read"(%[[P]])
func.func @split(%x: tensor<4x8xf32>) {
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  %g = "neptune.global"() ({
    %m = "neptune.reduce"() ({
      %a = "neptune.read"(%p) {map = affine_map<(c, i) -> (c, i)>} : (tensor<2x4xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 2, 4>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 1>} : () -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {axis_names = ["c", "i"], domain = array<i64: 2, 4>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

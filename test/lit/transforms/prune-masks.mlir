// RUN: neptune-opt %s --prune-masks 2>&1 | filecheck %s

// A causal row sum: where j > i the sum receives 0, so such a point is not live.

// CHECK: prune-masks.mlir:[[#]]:{{[0-9]+}}: remark: live only where (j <= i)

// CHECK-LABEL: func.func @causal
// CHECK: ^bb0(%[[I:.*]]: index, %[[J:.*]]: index):
// CHECK: %[[MINUS:.*]] = arith.muli %[[J]], %c-1
// CHECK: %[[D:.*]] = arith.addi %[[I]], %[[MINUS]]
// CHECK: %[[C:.*]] = arith.cmpi sge, %[[D]], %c0
// CHECK-NEXT: "neptune.yield"(%[[C]]) : (i1) -> ()
#ij = affine_map<(i, j) -> (i, j)>
func.func @causal(%x: tensor<64x64xf32>) -> tensor<64xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<64xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<64x64xf32>) -> f32
      %i = "neptune.index"() {dim = 0 : i64} : () -> index
      %j = "neptune.index"() {dim = 1 : i64} : () -> index
      %c = arith.cmpi sle, %j, %i : index
      %zero = arith.constant 0.0 : f32
      %m = arith.select %c, %a, %zero : f32
      "neptune.yield"(%m) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 64, 64>,
            neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<64xf32>) -> tensor<64xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {
  ^bb0(%s: tensor<64xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 64, 64>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// A sum of exp(x) over all j with a mask of 1 instead of 0: every point counts, nothing is pruned.

// CHECK-LABEL: func.func @counted
// CHECK-NOT: index, %{{.*}}: index):
// CHECK: return
func.func @counted(%x: tensor<64x64xf32>) -> tensor<64xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<64xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<64x64xf32>) -> f32
      %i = "neptune.index"() {dim = 0 : i64} : () -> index
      %j = "neptune.index"() {dim = 1 : i64} : () -> index
      %c = arith.cmpi sle, %j, %i : index
      %one = arith.constant 1.0 : f32
      %m = arith.select %c, %a, %one : f32
      "neptune.yield"(%m) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 64, 64>,
            neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<64xf32>) -> tensor<64xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {
  ^bb0(%s: tensor<64xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 64, 64>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// The maximum of an earlier nest is -inf where a row sees nothing, and so is the sum a NaN there: the
// points are not visited, and the finish says so.

// CHECK-LABEL: func.func @row_maximum
// CHECK: %[[G:.*]] = "neptune.reduce"
// CHECK: "neptune.produce"
// CHECK: ^bb0(%[[T:.*]]: tensor<64xf32>):
// CHECK-NEXT: "neptune.map"()
// CHECK: "neptune.read"(%[[G]])
// CHECK: %[[GONE:.*]] = arith.cmpf oeq
// CHECK: "neptune.read"(%[[T]])
// CHECK: %[[NONE:.*]] = arith.cmpf oeq
// CHECK: arith.andi %[[GONE]], %[[NONE]]
// CHECK: 0x7FC00000
#i = affine_map<(i, j) -> (i)>
func.func @row_maximum(%x: tensor<64x64xf32>) -> tensor<64xf32> {
  %g = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #ij} : (tensor<64x64xf32>) -> f32
    %i = "neptune.index"() {dim = 0 : i64} : () -> index
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %c = arith.cmpi sle, %j, %i : index
    %low = arith.constant 0xFF800000 : f32
    %m = arith.select %c, %a, %low : f32
    "neptune.yield"(%m) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 64, 64>,
          result_axes = array<i64: 0>} : () -> tensor<64xf32>
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<64xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<64x64xf32>) -> f32
      %most = "neptune.read"(%g) {map = #i} : (tensor<64xf32>) -> f32
      %i = "neptune.index"() {dim = 0 : i64} : () -> index
      %j = "neptune.index"() {dim = 1 : i64} : () -> index
      %c = arith.cmpi sle, %j, %i : index
      %low = arith.constant 0xFF800000 : f32
      %m = arith.select %c, %a, %low : f32
      %d = arith.subf %m, %most : f32
      %e = math.exp %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 64, 64>,
            neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<64xf32>) -> tensor<64xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {
  ^bb0(%s: tensor<64xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 64, 64>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<64xf32>
  return %r : tensor<64xf32>
}

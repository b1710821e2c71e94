// RUN: neptune-opt %s --merge-rows 2>%t | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t

// Heads of a group and queries are rows: q and the result are seen under another shape, and the
// mask computes the query.
// CHECK: #[[ROW:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
// CHECK: #[[KEY:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
// CHECK-DAG: #[[FIRST:.*]] = affine_map<(d0, d1, d2) -> (d0, 0)>
// CHECK-DAG: #[[SECOND:.*]] = affine_map<(d0, d1, d2) -> (d0, 1)>
// CHECK-DAG: #[[THIRD:.*]] = affine_map<(d0, d1, d2) -> (d0, 2)>
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: neptune.merged_rows = 0
// CHECK-DAG: %[[I:.*]] = tensor.dim %arg0, %c2
// CHECK: %[[E:.*]] = tensor.expand_shape %arg0
// CHECK-SAME: tensor<?x?x?x8xf16> into tensor<?x?x4x?x8xf16>
// CHECK: %[[Q:.*]] = tensor.collapse_shape %[[E]]
// CHECK-SAME: tensor<?x?x4x?x8xf16> into tensor<?x?x?x8xf16>
// CHECK: "neptune.reduce"
// CHECK: "neptune.read"(%[[Q]]) {map = #[[ROW]]}
// CHECK: "neptune.read"(%arg1) {map = #[[KEY]]}
// CHECK: axis_names = ["b", "h", "hi", "j", "d"]
// CHECK: "neptune.map"
// CHECK: %[[R:.*]] = "neptune.index"() {dim = 2 : i64}
// CHECK: arith.remsi %[[R]], %[[I]] : index
// CHECK: tensor.expand_shape
// CHECK: %[[C:.*]] = tensor.collapse_shape
// CHECK-SAME: tensor<?x?x4x?x?xf32> into tensor<?x?x?x?xf32>
// CHECK: return %[[C]]
// REMARK: remark: 'h' and 'i' are rows together
func.func @grouped(%q: tensor<?x?x?x8xf16>, %k: tensor<?x?x?x8xf16>) -> tensor<?x?x?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x?x8xf16>
  %h = tensor.dim %q, %c1 : tensor<?x?x?x8xf16>
  %i = tensor.dim %q, %c2 : tensor<?x?x?x8xf16>
  %j = tensor.dim %k, %c2 : tensor<?x?x?x8xf16>
  %s = "neptune.reduce"(%b, %h, %i, %j) ({
    %0 = "neptune.read"(%q) {map = affine_map<(b, h, i, j, d) -> (b, h, i, d)>} : (tensor<?x?x?x8xf16>) -> f16
    %1 = arith.extf %0 : f16 to f32
    %2 = "neptune.read"(%k) {map = affine_map<(b, h, i, j, d) -> (b, h floordiv 4, j, d)>} : (tensor<?x?x?x8xf16>) -> f16
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.mulf %1, %3 : f32
    "neptune.yield"(%4) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808, -9223372036854775808, 8>,
          neptune.axis_names = ["b", "h", "i", "j", "d"], result_axes = array<i64: 0, 1, 2, 3>} : (index, index, index, index) -> tensor<?x?x?x?xf32>
  %m = "neptune.map"(%b, %h, %i, %j) ({
    %0 = "neptune.read"(%s) {map = affine_map<(b, h, i, j) -> (b, h, i, j)>} : (tensor<?x?x?x?xf32>) -> f32
    %1 = "neptune.index"() {dim = 3 : i64} : () -> index
    %2 = "neptune.index"() {dim = 2 : i64} : () -> index
    %3 = arith.cmpi sle, %1, %2 : index
    %4 = arith.constant 0.0 : f32
    %5 = arith.select %3, %0, %4 : f32
    "neptune.yield"(%5) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index, index, index) -> tensor<?x?x?x?xf32>
  return %m : tensor<?x?x?x?xf32>
}

// A factor that reads neither axis: all of both are rows, and one axis is left.
// CHECK-LABEL: func.func @shared
// CHECK-SAME: neptune.merged_rows = 12
// CHECK: tensor.collapse_shape %arg0 {{.*}} : tensor<4x3x8xf16> into tensor<12x8xf16>
// CHECK: domain = array<i64: 12, 16, 8>
// CHECK: tensor.expand_shape {{.*}} : tensor<12x16xf32> into tensor<4x3x16xf32>
func.func @shared(%q: tensor<4x3x8xf16>, %k: tensor<16x8xf16>) -> tensor<4x3x16xf32> {
  %s = "neptune.reduce"() ({
    %0 = "neptune.read"(%q) {map = affine_map<(h, i, j, d) -> (h, i, d)>} : (tensor<4x3x8xf16>) -> f16
    %1 = arith.extf %0 : f16 to f32
    %2 = "neptune.read"(%k) {map = affine_map<(h, i, j, d) -> (j, d)>} : (tensor<16x8xf16>) -> f16
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.mulf %1, %3 : f32
    "neptune.yield"(%4) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 3, 16, 8>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<4x3x16xf32>
  return %s : tensor<4x3x16xf32>
}

// A scale that one of many heads has alone: a kernel makes a tensor of it that has both.
// CHECK-LABEL: func.func @scaled
// CHECK-SAME: neptune.merged_rows = 60
// CHECK-SAME: neptune.spreads
// CHECK: %[[BOTH:.*]] = "neptune.map"()
// CHECK: "neptune.read"(%arg2) {map = #{{.*}}} : (tensor<20xf32>) -> f32
// CHECK-NEXT: "neptune.yield"
// CHECK-NEXT: domain = array<i64: 20, 3>
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %[[BOTH]] {{.*}} : tensor<20x3xf32> into tensor<60xf32>
// CHECK: "neptune.read"(%[[ROWS]])
// CHECK: return
func.func @scaled(%q: tensor<20x3x8xf16>, %k: tensor<16x8xf16>, %a: tensor<20xf32>) -> tensor<20x3x16xf32> {
  %s = "neptune.reduce"() ({
    %0 = "neptune.read"(%q) {map = affine_map<(h, i, j, d) -> (h, i, d)>} : (tensor<20x3x8xf16>) -> f16
    %1 = arith.extf %0 : f16 to f32
    %2 = "neptune.read"(%k) {map = affine_map<(h, i, j, d) -> (j, d)>} : (tensor<16x8xf16>) -> f16
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.mulf %1, %3 : f32
    "neptune.yield"(%4) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 20, 3, 16, 8>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<20x3x16xf32>
  %m = "neptune.map"() ({
    %0 = "neptune.read"(%s) {map = affine_map<(h, i, j) -> (h, i, j)>} : (tensor<20x3x16xf32>) -> f32
    %1 = "neptune.read"(%a) {map = affine_map<(h, i, j) -> (h)>} : (tensor<20xf32>) -> f32
    %2 = arith.mulf %0, %1 : f32
    "neptune.yield"(%2) : (f32) -> ()
  }) {domain = array<i64: 20, 3, 16>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<20x3x16xf32>
  return %m : tensor<20x3x16xf32>
}

// A scale of each of few heads: a row chooses among those of its group, by where it lies.
// CHECK-LABEL: func.func @chosen
// CHECK-NOT: neptune.spreads
// CHECK: %[[I:.*]] = tensor.dim %arg0, %c1
// CHECK: %[[A:.*]] = tensor.expand_shape %arg2 {{.*}} : tensor<6xf32> into tensor<2x3xf32>
// CHECK: "neptune.map"
// CHECK: %[[ROW:.*]] = "neptune.index"() {dim = 1 : i64}
// CHECK: %[[IN0:.*]] = arith.cmpi slt, %[[ROW]], %[[I]]
// CHECK: %[[A0:.*]] = "neptune.read"(%[[A]]) {map = #[[FIRST]]}
// CHECK: %[[TWO:.*]] = arith.muli %[[I]], %c2
// CHECK: %[[IN1:.*]] = arith.cmpi slt, %[[ROW]], %[[TWO]]
// CHECK: %[[A1:.*]] = "neptune.read"(%[[A]]) {map = #[[SECOND]]}
// CHECK: %[[A2:.*]] = "neptune.read"(%[[A]]) {map = #[[THIRD]]}
// CHECK: %[[REST:.*]] = arith.select %[[IN1]], %[[A1]], %[[A2]]
// CHECK: arith.select %[[IN0]], %[[A0]], %[[REST]]
func.func @chosen(%q: tensor<6x?x8xf16>, %k: tensor<2x16x8xf16>, %a: tensor<6xf32>) -> tensor<6x?x16xf32> {
  %c1 = arith.constant 1 : index
  %i = tensor.dim %q, %c1 : tensor<6x?x8xf16>
  %s = "neptune.reduce"(%i) ({
    %0 = "neptune.read"(%q) {map = affine_map<(h, i, j, d) -> (h, i, d)>} : (tensor<6x?x8xf16>) -> f16
    %1 = arith.extf %0 : f16 to f32
    %2 = "neptune.read"(%k) {map = affine_map<(h, i, j, d) -> (h floordiv 3, j, d)>} : (tensor<2x16x8xf16>) -> f16
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.mulf %1, %3 : f32
    "neptune.yield"(%4) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 6, -9223372036854775808, 16, 8>, result_axes = array<i64: 0, 1, 2>} : (index) -> tensor<6x?x16xf32>
  %m = "neptune.map"(%i) ({
    %0 = "neptune.read"(%s) {map = affine_map<(h, i, j) -> (h, i, j)>} : (tensor<6x?x16xf32>) -> f32
    %1 = "neptune.read"(%a) {map = affine_map<(h, i, j) -> (h)>} : (tensor<6xf32>) -> f32
    %2 = arith.mulf %0, %1 : f32
    "neptune.yield"(%2) : (f32) -> ()
  }) {domain = array<i64: 6, -9223372036854775808, 16>, result_axes = array<i64: 0, 1, 2>} : (index) -> tensor<6x?x16xf32>
  return %m : tensor<6x?x16xf32>
}

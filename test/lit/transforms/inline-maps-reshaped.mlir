// RUN: neptune-opt %s --inline-maps | filecheck %s

// A mean of groups of 16 is subtracted from rows that are seen without groups, and squares are
// summed of what is seen in groups again: nothing of it is a tensor in memory.
// CHECK: #[[QUOTIENT:.*]] = affine_map<(d0, d1) -> (d0, d1 floordiv 16)>
// CHECK-LABEL: func.func @centred
// CHECK: %[[G:.*]] = tensor.expand_shape %arg0
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK: %[[Z:.*]] = "neptune.map"()
// CHECK-NEXT: "neptune.read"(%arg0)
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[QUOTIENT]]}
// CHECK-NOT: neptune.map
// CHECK: %[[V:.*]] = "neptune.reduce"()
// CHECK-NEXT: "neptune.read"(%[[G]]) {map = #{{.*}}} : (tensor<4x8x16xf32>) -> f32
// CHECK: arith.subf
// CHECK: return %[[V]], %[[Z]]
#3 = affine_map<(i, g, e) -> (i, g, e)>
#2 = affine_map<(i, j) -> (i, j)>
#m = affine_map<(i, j) -> (i, j floordiv 16)>
func.func @centred(%x: tensor<4x128xf32>) -> (tensor<4x8xf32>, tensor<4x128xf32>) {
  %groups = tensor.expand_shape %x [[0], [1, 2]] output_shape [4, 8, 16]
      : tensor<4x128xf32> into tensor<4x8x16xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%groups) {map = #3} : (tensor<4x8x16xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8, 16>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<4x8x16xf32>
  %rows = tensor.collapse_shape %y [[0], [1, 2]] : tensor<4x8x16xf32> into tensor<4x128xf32>
  %mean = "neptune.reduce"() ({
    %a = "neptune.read"(%y) {map = #3} : (tensor<4x8x16xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8, 16>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %z = "neptune.map"() ({
    %a = "neptune.read"(%rows) {map = #2} : (tensor<4x128xf32>) -> f32
    %b = "neptune.read"(%mean) {map = #m} : (tensor<4x8xf32>) -> f32
    %c = arith.subf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }) {domain = array<i64: 4, 128>, result_axes = array<i64: 0, 1>} : () -> tensor<4x128xf32>
  %again = tensor.expand_shape %z [[0], [1, 2]] output_shape [4, 8, 16]
      : tensor<4x128xf32> into tensor<4x8x16xf32>
  %v = "neptune.reduce"() ({
    %a = "neptune.read"(%again) {map = #3} : (tensor<4x8x16xf32>) -> f32
    %b = arith.mulf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8, 16>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return %v, %z : tensor<4x8xf32>, tensor<4x128xf32>
}

// What follows a product and is seen in groups is in memory: who reads it without groups reads
// that, not the product.
// CHECK-LABEL: func.func @product
// CHECK: %[[P:.*]] = "neptune.reduce"()
// CHECK: %[[Y:.*]] = "neptune.map"()
// CHECK-NEXT: "neptune.read"(%[[P]])
// CHECK: tensor.expand_shape %[[Y]]
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK: "neptune.map"()
// CHECK-NEXT: "neptune.read"(%[[Y]])
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[QUOTIENT]]}
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
func.func @product(%x: tensor<4x32xf32>, %w: tensor<128x32xf32>) -> tensor<4x128xf32> {
  %p = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #a} : (tensor<4x32xf32>) -> f32
    %b = "neptune.read"(%w) {map = #b} : (tensor<128x32xf32>) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 128, 32>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x128xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%p) {map = #2} : (tensor<4x128xf32>) -> f32
    %b = math.tanh %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: 4, 128>, result_axes = array<i64: 0, 1>} : () -> tensor<4x128xf32>
  %groups = tensor.expand_shape %y [[0], [1, 2]] output_shape [4, 8, 16]
      : tensor<4x128xf32> into tensor<4x8x16xf32>
  %mean = "neptune.reduce"() ({
    %a = "neptune.read"(%groups) {map = #3} : (tensor<4x8x16xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8, 16>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %z = "neptune.map"() ({
    %a = "neptune.read"(%y) {map = #2} : (tensor<4x128xf32>) -> f32
    %b = "neptune.read"(%mean) {map = #m} : (tensor<4x8xf32>) -> f32
    %c = arith.subf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }) {domain = array<i64: 4, 128>, result_axes = array<i64: 0, 1>} : () -> tensor<4x128xf32>
  return %z : tensor<4x128xf32>
}

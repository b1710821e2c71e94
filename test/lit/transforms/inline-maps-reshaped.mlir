// RUN: neptune-opt %s --inline-maps | filecheck %s

// A mean of groups of 16 is subtracted from rows that are seen without groups, and squares are
// summed of what is seen in groups again: nothing of it is a tensor in memory, and what is returned
// has two axes where the mean has.
// CHECK: #[[GROUP:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @centred
// CHECK: %[[G:.*]] = tensor.expand_shape %arg0
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK: %[[Y:.*]] = "neptune.map"()
// CHECK-NEXT: "neptune.read"(%[[G]])
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[GROUP]]}
// CHECK: domain = array<i64: 4, 8, 16>
// CHECK: %[[Z:.*]] = tensor.collapse_shape %[[Y]]
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

// What follows a product and is seen in groups is in memory: who reads it reads that, not the
// product.
// CHECK-LABEL: func.func @product
// CHECK: %[[P:.*]] = "neptune.reduce"()
// CHECK: %[[Y:.*]] = "neptune.map"()
// CHECK-NEXT: "neptune.read"(%[[P]])
// CHECK: %[[G:.*]] = tensor.expand_shape %[[Y]]
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK: "neptune.map"()
// CHECK-NEXT: "neptune.read"(%[[G]])
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[GROUP]]}
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

// A row's minimum of what has a mean of its groups taken off is reduced along both axes; weights of
// elements are seen in groups, too.
// CHECK-LABEL: func.func @least
// CHECK: %[[G:.*]] = tensor.expand_shape %arg0
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK: %[[W:.*]] = tensor.expand_shape %arg1
// CHECK: "neptune.reduce"()
// CHECK-NEXT: "neptune.read"(%[[G]])
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[GROUP]]}
// CHECK: "neptune.read"(%[[W]]) {map = #{{.*}}} : (tensor<8x16xf32>) -> f32
// CHECK: domain = array<i64: 4, 8, 16>, {{.*}} result_axes = array<i64: 0>
func.func @least(%x: tensor<4x128xf32>, %w: tensor<128xf32>) -> tensor<4xf32> {
  %groups = tensor.expand_shape %x [[0], [1, 2]] output_shape [4, 8, 16]
      : tensor<4x128xf32> into tensor<4x8x16xf32>
  %mean = "neptune.reduce"() ({
    %a = "neptune.read"(%groups) {map = #3} : (tensor<4x8x16xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8, 16>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %least = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #2} : (tensor<4x128xf32>) -> f32
    %b = "neptune.read"(%mean) {map = #m} : (tensor<4x8xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = "neptune.read"(%w) {map = affine_map<(i, j) -> (j)>} : (tensor<128xf32>) -> f32
    %e = arith.mulf %c, %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "min", identity = 0x7F800000 : f32, domain = array<i64: 4, 128>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %least : tensor<4xf32>
}

// Heads that share keys are read at a quotient too; nothing reduces along groups of them.
// CHECK-LABEL: func.func @shared
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @shared(%q: tensor<128x8xf32>, %k: tensor<8x8xf32>) -> tensor<128x8xf32> {
  %n = "neptune.reduce"() ({
    %a = "neptune.read"(%k) {map = affine_map<(h, d) -> (h, d)>} : (tensor<8x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 8, 8>,
          result_axes = array<i64: 0>} : () -> tensor<8xf32>
  %s = "neptune.map"() ({
    %a = "neptune.read"(%q) {map = #2} : (tensor<128x8xf32>) -> f32
    %b = "neptune.read"(%n) {map = affine_map<(h, d) -> (h floordiv 16)>} : (tensor<8xf32>) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }) {domain = array<i64: 128, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<128x8xf32>
  return %s : tensor<128x8xf32>
}

// The rows that a mean is subtracted from are an argument, which the mean reads in groups: so do
// the squares, as that view has what they read.
// CHECK-LABEL: func.func @argument
// CHECK: %[[G:.*]] = tensor.expand_shape %arg0
// CHECK: %[[M:.*]] = "neptune.reduce"()
// CHECK-NEXT: "neptune.read"(%[[G]])
// CHECK-NOT: neptune.map
// CHECK: %[[V:.*]] = "neptune.reduce"()
// CHECK-NEXT: "neptune.read"(%[[G]])
// CHECK-NEXT: "neptune.read"(%[[M]]) {map = #[[GROUP]]}
// CHECK: return %[[V]]
func.func @argument(%x: tensor<4x128xf32>) -> tensor<4x8xf32> {
  %groups = tensor.expand_shape %x [[0], [1, 2]] output_shape [4, 8, 16]
      : tensor<4x128xf32> into tensor<4x8x16xf32>
  %mean = "neptune.reduce"() ({
    %a = "neptune.read"(%groups) {map = #3} : (tensor<4x8x16xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8, 16>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  %z = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = #2} : (tensor<4x128xf32>) -> f32
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
  return %v : tensor<4x8xf32>
}

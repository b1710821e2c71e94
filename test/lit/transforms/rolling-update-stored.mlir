// RUN: neptune-opt %s --rolling-update 2>&1 | filecheck %s

// Two products read a contraction that is too deep to be computed by each: what both make of it,
// element by element, is stored in its place, in the type that they take.

// CHECK: remark: what products make of a contraction is stored in its place
// CHECK-LABEL: func.func @stored
// CHECK: %[[G:.*]] = "neptune.stream"
// CHECK: "neptune.accumulate"
// CHECK: "neptune.map"
// CHECK: math.exp
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: -> tensor<512x256xf16>
// CHECK-NOT: math.exp
// CHECK: "neptune.read"(%[[G]])
// CHECK-NOT: math.exp
// CHECK: "neptune.read"(%[[G]])

// Where something else reads it, it is stored anyway; and so it is where both make other things of
// it, which would take more memory.
// CHECK-LABEL: func.func @returned
// CHECK-NOT: arith.truncf %{{.*}} : f32 to f16
// CHECK: "neptune.reduce"
// CHECK: math.exp
// CHECK-LABEL: func.func @wide
// CHECK: -> tensor<512x256xf32>
// CHECK: math.exp
#ij = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#i = affine_map<(i, j, d) -> (i)>
func.func @stored(%x: tensor<512x1024xf16>, %w: tensor<256x1024xf16>, %l: tensor<512xf32>)
    -> (tensor<512x1024xf32>, tensor<256x1024xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf16>) -> f16
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x256xf32>
  %dx = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<512x256xf32>) -> f32
    %r = "neptune.read"(%l) {map = #i} : (tensor<512xf32>) -> f32
    %e = arith.subf %a, %r : f32
    %f = math.exp %e : f32
    %g = arith.truncf %f : f32 to f16
    %h = arith.extf %g : f16 to f32
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %h, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x1024xf32>
  %dw = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<512x256xf32>) -> f32
    %r = "neptune.read"(%l) {map = #i} : (tensor<512xf32>) -> f32
    %e = arith.subf %a, %r : f32
    %f = math.exp %e : f32
    %g = arith.truncf %f : f32 to f16
    %h = arith.extf %g : f16 to f32
    %b = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %h, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 1, 2>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<256x1024xf32>
  return %dx, %dw : tensor<512x1024xf32>, tensor<256x1024xf32>
}
func.func @returned(%x: tensor<512x1024xf16>, %w: tensor<256x1024xf16>, %l: tensor<512xf32>)
    -> (tensor<512x256xf32>, tensor<512x1024xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf16>) -> f16
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x256xf32>
  %dx = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<512x256xf32>) -> f32
    %f = math.exp %a : f32
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %f, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x1024xf32>
  return %s, %dx : tensor<512x256xf32>, tensor<512x1024xf32>
}
func.func @wide(%x: tensor<512x1024xf16>, %w: tensor<256x1024xf16>)
    -> (tensor<512x1024xf32>, tensor<256x1024xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf16>) -> f16
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x256xf32>
  %dx = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<512x256xf32>) -> f32
    %f = math.exp %a : f32
    %b = "neptune.read"(%w) {map = #jd} : (tensor<256x1024xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %f, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<512x1024xf32>
  %dw = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<512x256xf32>) -> f32
    %f = math.sin %a : f32
    %b = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %f, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 1, 2>,
          domain = array<i64: 512, 256, 1024>} : () -> tensor<256x1024xf32>
  return %dx, %dw : tensor<512x1024xf32>, tensor<256x1024xf32>
}
// A product of such a factor is a contraction itself, of which another product makes something.
// CHECK-LABEL: func.func @again
// CHECK: "neptune.map"
// CHECK: arith.subf
// CHECK: "neptune.accumulate"
// CHECK: "neptune.map"
// CHECK: arith.subf
// CHECK: "neptune.reduce"
// CHECK-NOT: arith.subf
#f = affine_map<(i, j, d) -> (d, j)>
func.func @again(%x: tensor<512x1024xf32>, %w: tensor<1024x1024xf32>, %y: tensor<1024x1024xf32>)
    -> tensor<512x1024xf32> {
  %one = arith.constant 1.0 : f32
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #id} : (tensor<512x1024xf32>) -> f32
    %b = "neptune.read"(%w) {map = #f} : (tensor<1024x1024xf32>) -> f32
    %p = arith.mulf %a, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 1024, 1024>} : () -> tensor<512x1024xf32>
  %t = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #id} : (tensor<512x1024xf32>) -> f32
    %e = arith.subf %one, %a : f32
    %b = "neptune.read"(%y) {map = #f} : (tensor<1024x1024xf32>) -> f32
    %p = arith.mulf %e, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 1024, 1024>} : () -> tensor<512x1024xf32>
  %u = "neptune.reduce"() ({
    %a = "neptune.read"(%t) {map = #id} : (tensor<512x1024xf32>) -> f32
    %e = arith.subf %one, %a : f32
    %b = "neptune.read"(%w) {map = #f} : (tensor<1024x1024xf32>) -> f32
    %p = arith.mulf %e, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 1024, 1024>} : () -> tensor<512x1024xf32>
  return %u : tensor<512x1024xf32>
}

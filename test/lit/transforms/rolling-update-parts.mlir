// RUN: neptune-opt %s --rolling-update 2>&1 | filecheck %s

// Scores are summed over rows and columns, and a product reads them: the sum over the columns joins
// the stream that makes them, with a number a row, and another reduction sums these. No scores are
// stored.
// CHECK: remark: a sum is taken in two parts, the first beside a stream
// CHECK-LABEL: func.func @scale
// CHECK: %[[S:.*]]:2 = "neptune.stream"
// CHECK: "neptune.produce"(%{{.*}}, %{{.*}}) {{.*}} (tensor<4x512x64xf32>, tensor<4x512xf32>)
// CHECK: %[[A:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[S]]#1)
// CHECK: return %[[S]]#0, %[[A]]

// One of two such sums reads the other.
// CHECK-LABEL: func.func @centred
// CHECK: "neptune.produce"(%{{.*}}) {{.*}} (tensor<4x256xf32>)
// CHECK: return

// Nothing computes scores for each pair of tiles: one sum.
// CHECK-LABEL: func.func @alone
// CHECK-NOT: tensor<4x512xf32>
// CHECK: return
#hijd = affine_map<(h, i, j, d) -> (h, i, j)>
#id = affine_map<(h, i, j, d) -> (h, i, d)>
#jd = affine_map<(h, i, j, d) -> (h, j, d)>
#h = affine_map<(h, i, j) -> (h)>
#hij = affine_map<(h, i, j) -> (h, i, j)>
func.func @scale(%q: tensor<4x512x64xf16>, %k: tensor<4x256x64xf16>)
    -> (tensor<4x512x64xf32>, tensor<4xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #id} : (tensor<4x512x64xf16>) -> f16
    %b = "neptune.read"(%k) {map = #jd} : (tensor<4x256x64xf16>) -> f16
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1, 2>,
          domain = array<i64: 4, 512, 256, 64>} : () -> tensor<4x512x256xf32>
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #hijd} : (tensor<4x512x256xf32>) -> f32
    %e = math.exp %a : f32
    %b = "neptune.read"(%k) {map = #jd} : (tensor<4x256x64xf16>) -> f16
    %c = arith.extf %b : f16 to f32
    %p = arith.mulf %e, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1, 3>,
          domain = array<i64: 4, 512, 256, 64>} : () -> tensor<4x512x64xf32>
  %x = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #hij} : (tensor<4x512x256xf32>) -> f32
    %e = math.exp %a : f32
    %p = arith.mulf %e, %a : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: 4, 512, 256>} : () -> tensor<4xf32>
  return %o, %x : tensor<4x512x64xf32>, tensor<4xf32>
}
func.func @centred(%q: tensor<4x512x64xf16>, %k: tensor<4x256x64xf16>) -> tensor<4xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #id} : (tensor<4x512x64xf16>) -> f16
    %b = "neptune.read"(%k) {map = #jd} : (tensor<4x256x64xf16>) -> f16
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1, 2>,
          domain = array<i64: 4, 512, 256, 64>} : () -> tensor<4x512x256xf32>
  %x = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #hij} : (tensor<4x512x256xf32>) -> f32
    %e = math.exp %a : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: 4, 512, 256>} : () -> tensor<4xf32>
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #hij} : (tensor<4x512x256xf32>) -> f32
    %m = "neptune.read"(%x) {map = #h} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %m : f32
    %p = arith.mulf %d, %d : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: 4, 512, 256>} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @alone(%s: tensor<4x512x256xf32>) -> tensor<4xf32> {
  %x = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #hij} : (tensor<4x512x256xf32>) -> f32
    %p = arith.mulf %a, %a : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: 4, 512, 256>} : () -> tensor<4xf32>
  return %x : tensor<4xf32>
}

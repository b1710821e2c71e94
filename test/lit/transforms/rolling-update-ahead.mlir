// RUN: neptune-opt %s --rolling-update=ahead=true 2>&1 | filecheck %s
// RUN: neptune-opt %s --rolling-update 2>&1 | filecheck %s --check-prefix=FUSED

// A row's mean enters a factor as a term of a sum: the factor is a map in the pass that reduces
// what it needs, rounded as its partner is, and the product has two tensors to multiply.

// CHECK: remark: a factor is computed ahead of its product
// CHECK-LABEL: func.func @centred
// CHECK: %[[FACTOR:.*]] = "neptune.stream"
// CHECK: "neptune.map"
// CHECK: arith.subf
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: -> tensor<?x4096xf16>
// CHECK: "neptune.reduce"
// CHECK: "neptune.read"(%[[FACTOR]])
// CHECK-NOT: arith.subf
// CHECK: arith.mulf

// What only scales rows waits behind the product, and nothing is computed ahead.
// CHECK-LABEL: func.func @scaled
// CHECK: "neptune.stream"
// CHECK-NOT: arith.truncf
// CHECK: return

// Neither factor of f32 has the sum along its rows, which may be multiplied as TF32: the smaller one
// is copied.
// CHECK-LABEL: func.func @turned
// CHECK: %[[COPY:.*]] = "neptune.map"
// CHECK: -> tensor<256x4096xf32>
// CHECK: "neptune.read"(%[[COPY]])

// What divides a row by its size keeps a factor that is rounded to f16 in range: it is computed
// ahead, or sums are corrected as they run. bf16 has the range of f32: it waits behind the product.
// CHECK-LABEL: func.func @in_range
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: -> tensor<?x4096xf16>
// CHECK: "neptune.reduce"
// CHECK-LABEL: func.func @has_range
// CHECK-NOT: arith.truncf
// CHECK: return

// FUSED-NOT: computed ahead
// FUSED-LABEL: func.func @centred
// FUSED: "neptune.correct"
// FUSED-NOT: arith.truncf
// FUSED: return
// FUSED-LABEL: func.func @in_range
// FUSED: "neptune.correct"
// FUSED: return
// FUSED-LABEL: func.func @has_range
// FUSED-NOT: "neptune.correct"
// FUSED: return
#x = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#xn = affine_map<(i, j, n) -> (i, j)>
#rown = affine_map<(i, j, n) -> (i)>
#wn = affine_map<(i, j, n) -> (j, n)>
func.func @centred(%x: tensor<?x4096xf32>, %w: tensor<4096x64xf16>, %n: index) -> tensor<?x64xf32> {
  %s = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #x} : (tensor<?x4096xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: -9223372036854775808, 4096>} : (index) -> tensor<?xf32>
  %o = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #xn} : (tensor<?x4096xf32>) -> f32
    %m = "neptune.read"(%s) {map = #rown} : (tensor<?xf32>) -> f32
    %c = arith.constant 4096.0 : f32
    %mean = arith.divf %m, %c : f32
    %d = arith.subf %a, %mean : f32
    %b = "neptune.read"(%w) {map = #wn} : (tensor<4096x64xf16>) -> f16
    %e = arith.extf %b : f16 to f32
    %p = arith.mulf %d, %e : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: -9223372036854775808, 4096, 64>} : (index) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
func.func @scaled(%x: tensor<?x4096xf32>, %w: tensor<4096x64xf16>, %n: index) -> tensor<?x64xf32> {
  %s = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #x} : (tensor<?x4096xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: -9223372036854775808, 4096>} : (index) -> tensor<?xf32>
  %o = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #xn} : (tensor<?x4096xf32>) -> f32
    %m = "neptune.read"(%s) {map = #rown} : (tensor<?xf32>) -> f32
    %d = arith.mulf %a, %m : f32
    %b = "neptune.read"(%w) {map = #wn} : (tensor<4096x64xf16>) -> f16
    %e = arith.extf %b : f16 to f32
    %p = arith.mulf %d, %e : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: -9223372036854775808, 4096, 64>} : (index) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
func.func @turned(%x: tensor<4096x512xf32>, %w: tensor<4096x256xf32>) -> tensor<512x256xf32>
    attributes {neptune.precision = "tf32"} {
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, n, j) -> (j, i)>} : (tensor<4096x512xf32>) -> f32
    %b = "neptune.read"(%w) {map = affine_map<(i, n, j) -> (j, n)>} : (tensor<4096x256xf32>) -> f32
    %p = arith.mulf %a, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1>,
          domain = array<i64: 512, 256, 4096>} : () -> tensor<512x256xf32>
  return %o : tensor<512x256xf32>
}
func.func @in_range(%x: tensor<?x4096xf32>, %w: tensor<4096x64xf16>, %n: index) -> tensor<?x64xf32> {
  %s = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #x} : (tensor<?x4096xf32>) -> f32
    %b = arith.mulf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: -9223372036854775808, 4096>} : (index) -> tensor<?xf32>
  %o = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #xn} : (tensor<?x4096xf32>) -> f32
    %m = "neptune.read"(%s) {map = #rown} : (tensor<?xf32>) -> f32
    %r = math.rsqrt %m : f32
    %d = arith.mulf %a, %r : f32
    %b = "neptune.read"(%w) {map = #wn} : (tensor<4096x64xf16>) -> f16
    %e = arith.extf %b : f16 to f32
    %p = arith.mulf %d, %e : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: -9223372036854775808, 4096, 64>} : (index) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
func.func @has_range(%x: tensor<?x4096xf32>, %w: tensor<4096x64xbf16>, %n: index) -> tensor<?x64xf32> {
  %s = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #x} : (tensor<?x4096xf32>) -> f32
    %b = arith.mulf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: -9223372036854775808, 4096>} : (index) -> tensor<?xf32>
  %o = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = #xn} : (tensor<?x4096xf32>) -> f32
    %m = "neptune.read"(%s) {map = #rown} : (tensor<?xf32>) -> f32
    %r = math.rsqrt %m : f32
    %d = arith.mulf %a, %r : f32
    %b = "neptune.read"(%w) {map = #wn} : (tensor<4096x64xbf16>) -> bf16
    %e = arith.extf %b : bf16 to f32
    %p = arith.mulf %d, %e : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 2>,
          domain = array<i64: -9223372036854775808, 4096, 64>} : (index) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}

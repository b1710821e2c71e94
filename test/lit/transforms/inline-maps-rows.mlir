// RUN: neptune-opt %s --inline-maps | filecheck %s

module attributes {neptune.chip = "sm_90a"} {

// Axes that are reduced together, and read side by side everywhere, are one.
// CHECK-LABEL: func.func @joined
// CHECK: %[[X:.*]] = tensor.collapse_shape %arg0 {{\[\[}}0], [1, 2]] : tensor<4x6x8xf32> into tensor<4x48xf32>
// CHECK: "neptune.reduce"
// CHECK: "neptune.read"(%[[X]])
// CHECK: domain = array<i64: 4, 48>, {{.*}}result_axes = array<i64: 0>
// CHECK: "neptune.map"
// CHECK: domain = array<i64: 4, 48>
// CHECK: tensor.expand_shape {{.*}} tensor<4x48xf32> into tensor<4x6x8xf32>
func.func @joined(%x: tensor<4x6x8xf32>) -> tensor<4x6x8xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(n, i, j) -> (n, i, j)>} : (tensor<4x6x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 6, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(n, i, j) -> (n, i, j)>} : (tensor<4x6x8xf32>) -> f32
    %b = "neptune.read"(%s) {map = affine_map<(n, i, j) -> (n)>} : (tensor<4xf32>) -> f32
    %c = arith.subf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }) {domain = array<i64: 4, 6, 8>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<4x6x8xf32>
  return %y : tensor<4x6x8xf32>
}

// Not where something is read by one of them alone.
// CHECK-LABEL: func.func @weighted
// CHECK-NOT: tensor.collapse_shape
// CHECK: domain = array<i64: 4, 6, 8>
func.func @weighted(%x: tensor<4x6x8xf32>, %w: tensor<8xf32>) -> tensor<4xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(n, i, j) -> (n, i, j)>} : (tensor<4x6x8xf32>) -> f32
    %b = "neptune.read"(%w) {map = affine_map<(n, i, j) -> (j)>} : (tensor<8xf32>) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 6, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %s : tensor<4xf32>
}

// A sum over the rows of a product is made in chunks, which are programs.
// CHECK-LABEL: func.func @columns
// CHECK: domain = array<i64: 4096, 512, 64>
// CHECK: tensor.expand_shape {{.*}} tensor<4096x512xf32> into tensor<64x64x512xf32>
// CHECK: domain = array<i64: 64, 64, 512>, {{.*}}neptune.apart = "chunks are programs"{{.*}}result_axes = array<i64: 0, 2>
// CHECK: domain = array<i64: 64, 512>, {{.*}}neptune.apart{{.*}}result_axes = array<i64: 1>
func.func @columns(%x: tensor<4096x64xf32>, %w: tensor<512x64xf32>) -> tensor<512xf32> {
  %c = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, k)>} : (tensor<4096x64xf32>) -> f32
    %b = "neptune.read"(%w) {map = affine_map<(i, j, k) -> (j, k)>} : (tensor<512x64xf32>) -> f32
    %p = arith.mulf %a, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512, 64>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4096x512xf32>
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%c) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x512xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512>,
          result_axes = array<i64: 1>} : () -> tensor<512xf32>
  return %s : tensor<512xf32>
}

// What every reader rounds to 16 bits is stored so.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[C:.*]] = "neptune.reduce"
// CHECK: %[[R:.*]] = "neptune.map"
// CHECK: "neptune.read"(%[[C]])
// CHECK: arith.truncf
// CHECK: -> tensor<4096x512xbf16>
// CHECK: tensor.expand_shape %[[R]]
// CHECK-NOT: "neptune.read"(%[[C]])
// CHECK: return
func.func @rounded(%x: tensor<4096x64xbf16>, %w: tensor<512x64xbf16>)
    -> (tensor<512xf32>, tensor<4096x512xbf16>) {
  %c = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, k)>} : (tensor<4096x64xbf16>) -> bf16
    %b = "neptune.read"(%w) {map = affine_map<(i, j, k) -> (j, k)>} : (tensor<512x64xbf16>) -> bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512, 64>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4096x512xf32>
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%c) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x512xf32>) -> f32
    %b = arith.truncf %a : f32 to bf16
    %d = arith.extf %b : bf16 to f32
    "neptune.yield"(%d) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512>,
          result_axes = array<i64: 1>} : () -> tensor<512xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%c) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x512xf32>) -> f32
    %b = arith.truncf %a : f32 to bf16
    %d = arith.extf %b : bf16 to f32
    %e = "neptune.read"(%s) {map = affine_map<(i, j) -> (j)>} : (tensor<512xf32>) -> f32
    %f = arith.subf %d, %e : f32
    %g = arith.truncf %f : f32 to bf16
    "neptune.yield"(%g) : (bf16) -> ()
  }) {domain = array<i64: 4096, 512>, result_axes = array<i64: 0, 1>} : () -> tensor<4096x512xbf16>
  return %s, %y : tensor<512xf32>, tensor<4096x512xbf16>
}

// Means and squares of deviations over several axes are those of chunks, together.
// CHECK-LABEL: func.func @channels
// CHECK: %[[X:.*]] = tensor.expand_shape %arg0 {{.*}} tensor<4x3x8192xf32> into tensor<4x3x2x4096xf32>
// CHECK: %[[P:.*]] = "neptune.reduce"
// CHECK: result_axes = array<i64: 0, 1, 2>} : () -> tensor<3x4x2xf32>
// CHECK: %[[Q:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[P]])
// CHECK: result_axes = array<i64: 0, 1, 2>} : () -> tensor<3x4x2xf32>
// CHECK: %[[S:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[P]])
// CHECK: neptune.apart{{.*}} -> tensor<3xf32>
// CHECK: "neptune.reduce"
// CHECK-DAG: "neptune.read"(%[[P]])
// CHECK-DAG: "neptune.read"(%[[Q]])
// CHECK-DAG: "neptune.read"(%[[S]])
// CHECK: neptune.apart{{.*}} -> tensor<3xf32>
func.func @channels(%x: tensor<4x3x8192xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(c, b, e) -> (b, c, e)>} : (tensor<4x3x8192xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 3, 4, 8192>,
          result_axes = array<i64: 0>} : () -> tensor<3xf32>
  %v = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(c, b, e) -> (b, c, e)>} : (tensor<4x3x8192xf32>) -> f32
    %t = "neptune.read"(%s) {map = affine_map<(c, b, e) -> (c)>} : (tensor<3xf32>) -> f32
    %n = arith.constant 32768.0 : f32
    %m = arith.divf %t, %n : f32
    %d = arith.subf %a, %m : f32
    %q = arith.mulf %d, %d : f32
    "neptune.yield"(%q) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 3, 4, 8192>,
          result_axes = array<i64: 0>} : () -> tensor<3xf32>
  return %s, %v : tensor<3xf32>, tensor<3xf32>
}

// So are those over the rows of a product, whose chunks have columns beside them.
// CHECK-LABEL: func.func @rows_of_product
// CHECK: domain = array<i64: 4096, 512, 64>
// CHECK: tensor.expand_shape {{.*}} tensor<4096x512xf32> into tensor<64x64x512xf32>
// CHECK: %[[P:.*]] = "neptune.reduce"
// CHECK: domain = array<i64: 64, 64, 512>, {{.*}}result_axes = array<i64: 0, 2>} : () -> tensor<64x512xf32>
// CHECK: %[[Q:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[P]])
// CHECK: domain = array<i64: 64, 64, 512>, {{.*}}result_axes = array<i64: 0, 2>} : () -> tensor<64x512xf32>
// CHECK: %[[S:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[P]])
// CHECK: domain = array<i64: 64, 512>, {{.*}}neptune.apart{{.*}}result_axes = array<i64: 1>
// CHECK: "neptune.reduce"
// CHECK-DAG: "neptune.read"(%[[Q]])
// CHECK-DAG: "neptune.read"(%[[S]])
// CHECK: neptune.apart{{.*}}result_axes = array<i64: 1>
func.func @rows_of_product(%x: tensor<4096x64xf32>, %w: tensor<512x64xf32>)
    -> (tensor<512xf32>, tensor<512xf32>) {
  %c = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, k)>} : (tensor<4096x64xf32>) -> f32
    %b = "neptune.read"(%w) {map = affine_map<(i, j, k) -> (j, k)>} : (tensor<512x64xf32>) -> f32
    %p = arith.mulf %a, %b : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512, 64>,
          result_axes = array<i64: 0, 1>} : () -> tensor<4096x512xf32>
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%c) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x512xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512>,
          result_axes = array<i64: 1>} : () -> tensor<512xf32>
  %v = "neptune.reduce"() ({
    %a = "neptune.read"(%c) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x512xf32>) -> f32
    %t = "neptune.read"(%s) {map = affine_map<(i, j) -> (j)>} : (tensor<512xf32>) -> f32
    %n = arith.constant 4096.0 : f32
    %m = arith.divf %t, %n : f32
    %d = arith.subf %a, %m : f32
    %q = arith.mulf %d, %d : f32
    "neptune.yield"(%q) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4096, 512>,
          result_axes = array<i64: 1>} : () -> tensor<512xf32>
  return %s, %v : tensor<512xf32>, tensor<512xf32>
}

}

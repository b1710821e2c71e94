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

}

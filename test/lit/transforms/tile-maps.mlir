// Maps on a GPU: tiles lie as memory does.
// RUN: neptune-opt %s --tile | filecheck %s

// Read along one axis and written along the other.
// CHECK-LABEL: func.func @transposed
// CHECK: neptune.tile = array<i64: 64, 64>

// Read divided by 512 too: within a quotient, with rows that make up for it.
// CHECK-LABEL: func.func @group
// CHECK: neptune.tile = array<i64: 16, 256>
// CHECK-LABEL: func.func @small_group
// CHECK: neptune.tile = array<i64: 128, 16>

// Axes of one point are no rows.
// CHECK-LABEL: func.func @spread
// CHECK: neptune.tile = array<i64: 0, 16, 256, 0>
module attributes {neptune.chip = "sm_90a"} {
  func.func @transposed(%x: tensor<1024x2048xf32>) -> tensor<2048x1024xf32> {
    %o = "neptune.map"() ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (j, i)>} : (tensor<1024x2048xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }) {domain = array<i64: 2048, 1024>, result_axes = array<i64: 0, 1>} : () -> tensor<2048x1024xf32>
    return %o : tensor<2048x1024xf32>
  }
  func.func @group(%x: tensor<1024x8192xf32>, %m: tensor<1024x16xf32>) -> tensor<1024x8192xf32> {
    %o = "neptune.map"() ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<1024x8192xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i, j floordiv 512)>} : (tensor<1024x16xf32>) -> f32
      %c = arith.subf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }) {domain = array<i64: 1024, 8192>, result_axes = array<i64: 0, 1>} : () -> tensor<1024x8192xf32>
    return %o : tensor<1024x8192xf32>
  }
  func.func @small_group(%x: tensor<1024x8192xf32>, %m: tensor<1024x512xf32>) -> tensor<1024x8192xf32> {
    %o = "neptune.map"() ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<1024x8192xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i, j floordiv 16)>} : (tensor<1024x512xf32>) -> f32
      %c = arith.subf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }) {domain = array<i64: 1024, 8192>, result_axes = array<i64: 0, 1>} : () -> tensor<1024x8192xf32>
    return %o : tensor<1024x8192xf32>
  }
  func.func @spread(%x: tensor<8192xf32>, %y: tensor<1024xf32>) -> tensor<1x8192x1024x1xf32> {
    %o = "neptune.map"() ({
      %a = "neptune.read"(%x) {map = affine_map<(b, i, j, c) -> (i)>} : (tensor<8192xf32>) -> f32
      %d = "neptune.read"(%y) {map = affine_map<(b, i, j, c) -> (j)>} : (tensor<1024xf32>) -> f32
      %e = arith.addf %a, %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }) {domain = array<i64: 1, 8192, 1024, 1>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<1x8192x1024x1xf32>
    return %o : tensor<1x8192x1024x1xf32>
  }
}

// RUN: neptune-opt %s --inline-maps | filecheck %s
// RUN: sed 's/attributes.*{$/{/' %s | neptune-opt --inline-maps - | filecheck %s --check-prefix=CPU

// On GPUs an argument of one column is read as a vector: its elements are loaded side by side.
// CPU-NOT: tensor.collapse_shape
module attributes {neptune.chip = "sm_90a"} {
  // CHECK-LABEL: func.func @by_column
  // CHECK: %[[V:.*]] = tensor.collapse_shape %arg1 {{\[}}[0, 1]] : tensor<256x1xf32> into tensor<256xf32>
  // CHECK: "neptune.read"(%arg0)
  // CHECK-NEXT: "neptune.read"(%[[V]]) {map = #{{.*}}} : (tensor<256xf32>) -> f32
  func.func @by_column(%a: tensor<8x256xf32>, %x: tensor<256x1xf32>) -> tensor<8xf32> {
    %y = "neptune.reduce"() ({
      %l = "neptune.read"(%a) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x256xf32>) -> f32
      %r = "neptune.read"(%x) {map = affine_map<(i, j) -> (j, 0)>} : (tensor<256x1xf32>) -> f32
      %p = arith.mulf %l, %r : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 8, 256>,
            result_axes = array<i64: 0>} : () -> tensor<8xf32>
    return %y : tensor<8xf32>
  }

  // A length that only a call knows; an argument of one element stays as it is.
  // CHECK-LABEL: func.func @of_any_length
  // CHECK: tensor.collapse_shape %arg0 {{\[}}[0, 1]] : tensor<?x1xf32> into tensor<?xf32>
  // CHECK: "neptune.read"(%arg1) {map = #{{.*}}} : (tensor<1x1xf32>) -> f32
  func.func @of_any_length(%x: tensor<?x1xf32>, %s: tensor<1x1xf32>) -> tensor<f32> {
    %c = arith.constant 0 : index
    %n = tensor.dim %x, %c : tensor<?x1xf32>
    %y = "neptune.reduce"(%n) ({
      %l = "neptune.read"(%x) {map = affine_map<(j) -> (j, 0)>} : (tensor<?x1xf32>) -> f32
      %r = "neptune.read"(%s) {map = affine_map<(j) -> (0, 0)>} : (tensor<1x1xf32>) -> f32
      %p = arith.mulf %l, %r : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: -9223372036854775808>,
            result_axes = array<i64>} : (index) -> tensor<f32>
    return %y : tensor<f32>
  }
}

// A result that compares the maxima of two rows depends on both: proofs are about single elements.
// RUN: neptune-opt %s --free-references | filecheck %s

// CHECK-LABEL: func.func @across_rows
// CHECK-NOT: neptune.free

func.func @across_rows(%x: tensor<16x1024xf32>) -> tensor<16x16xf32> {
  %0 = "neptune.stream"() ({
  ^bb0(%m0: tensor<16xf32>, %l0: tensor<16xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<16x1024xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 16, 1024>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 2>} : (tensor<16xf32>) -> tensor<16xf32>
    %c = "neptune.correct"() ({
      %a = "neptune.read"(%l0) {map = affine_map<(i) -> (i)>} : (tensor<16xf32>) -> f32
      %b = "neptune.old"(%m0) {map = affine_map<(i) -> (i)>} : (tensor<16xf32>) -> f32
      %d = "neptune.new"(%m) {map = affine_map<(i) -> (i)>} : (tensor<16xf32>) -> f32
      %e = arith.subf %b, %d : f32
      %f = math.exp %e : f32
      %g = arith.mulf %a, %f : f32
      "neptune.yield"(%g) : (f32) -> ()
    }) {domain = array<i64: 16>, form = "exponential", result_axes = array<i64: 0>, neptune.axes = array<i64: 0>} : () -> tensor<16xf32>
    %l = "neptune.accumulate"(%c) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<16x1024xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<16xf32>) -> f32
      %d = arith.subf %a, %b : f32
      %e = math.exp %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 16, 1024>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 2>} : (tensor<16xf32>) -> tensor<16xf32>
    "neptune.produce"(%m, %l) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<16xf32>, tensor<16xf32>) -> ()
  }, {
  ^bb0(%m0: tensor<16xf32>, %l0: tensor<16xf32>):
    %y = "neptune.map"() ({
      %a = "neptune.read"(%m0) {map = affine_map<(i, k) -> (i)>} : (tensor<16xf32>) -> f32
      %b = "neptune.read"(%m0) {map = affine_map<(i, k) -> (k)>} : (tensor<16xf32>) -> f32
      %d = arith.subf %a, %b : f32
      "neptune.yield"(%d) : (f32) -> ()
    }) {domain = array<i64: 16, 16>, result_axes = array<i64: 0, 1>, neptune.axes = array<i64: 0, 1>} : () -> tensor<16x16xf32>
    "neptune.produce"(%y) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<16x16xf32>) -> ()
  }, {}) {axis = 2 : i64, axis_names = ["i", "k", "j"], domain = array<i64: 16, 16, 1024>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

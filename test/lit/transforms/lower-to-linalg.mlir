// Unfused nests become linalg again: the reference that fused results are checked against.
// RUN: neptune-opt %s --lower-to-linalg | filecheck %s

// CHECK-LABEL: func.func @softmax_sum
// CHECK:      %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK:      linalg.fill ins(%[[INF]]
// CHECK:      %[[M:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK:        arith.maximumf
// CHECK:      linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK-SAME:   %[[M]]
// CHECK:        math.exp
// CHECK:        arith.addf
// CHECK-NOT:  "neptune.
func.func @softmax_sum(%x: tensor<4x64xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x64xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 64>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x64xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 64>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

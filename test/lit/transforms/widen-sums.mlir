// RUN: neptune-opt %s --widen-sums | filecheck %s

// The sum runs in f32, and a map rounds it.
// CHECK-LABEL: func.func @total
// CHECK:      %[[W:.*]] = "neptune.reduce"(%[[N:.*]]) ({
// CHECK-NEXT:   %[[A:.*]] = "neptune.read"(%arg0) {{.*}} -> bf16
// CHECK-NEXT:   %[[F:.*]] = arith.extf %[[A]] : bf16 to f32
// CHECK-NEXT:   "neptune.yield"(%[[F]])
// CHECK:      combiner = "add", {{.*}}identity = 0.000000e+00 : f32
// CHECK:      %[[S:.*]] = "neptune.map"(%[[N]])
// CHECK-NEXT:   %[[B:.*]] = "neptune.read"(%[[W]])
// CHECK-NEXT:   arith.truncf %[[B]] : f32 to bf16
// CHECK:      return %[[S]]
func.func @total(%x: tensor<8x?xbf16>, %n: index) -> tensor<?xbf16> {
  %s = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(j, i) -> (i, j)>} : (tensor<8x?xbf16>) -> bf16
    "neptune.yield"(%a) : (bf16) -> ()
  }, {}) {combiner = "add", identity = 0.0 : bf16, domain = array<i64: -9223372036854775808, 8>,
          result_axes = array<i64: 0>} : (index) -> tensor<?xbf16>
  return %s : tensor<?xbf16>
}

// Factors are widened, so that their product is exact.
// CHECK-LABEL: func.func @product
// CHECK:      %[[A:.*]] = arith.extf %{{.*}} : f16 to f32
// CHECK:      %[[B:.*]] = arith.extf %{{.*}} : f16 to f32
// CHECK:      arith.mulf %[[A]], %[[B]] : f32
func.func @product(%x: tensor<8x4xf16>, %y: tensor<8x4xf16>) -> tensor<8xf16> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x4xf16>) -> f16
    %b = "neptune.read"(%y) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x4xf16>) -> f16
    %c = arith.mulf %a, %b : f16
    "neptune.yield"(%c) : (f16) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f16, domain = array<i64: 8, 4>,
          result_axes = array<i64: 0>} : () -> tensor<8xf16>
  return %s : tensor<8xf16>
}

// Maxima lose nothing, and other types stay.
// CHECK-LABEL: func.func @others
// CHECK:      combiner = "max", {{.*}}: f16
// CHECK:      combiner = "add", {{.*}}: f64
// CHECK-NOT:  neptune.map
func.func @others(%x: tensor<8x4xf16>, %y: tensor<8x4xf64>) -> (tensor<8xf16>, tensor<8xf64>) {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x4xf16>) -> f16
    "neptune.yield"(%a) : (f16) -> ()
  }, {}) {combiner = "max", identity = 0xFC00 : f16, domain = array<i64: 8, 4>,
          result_axes = array<i64: 0>} : () -> tensor<8xf16>
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%y) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x4xf64>) -> f64
    "neptune.yield"(%a) : (f64) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f64, domain = array<i64: 8, 4>,
          result_axes = array<i64: 0>} : () -> tensor<8xf64>
  return %m, %s : tensor<8xf16>, tensor<8xf64>
}

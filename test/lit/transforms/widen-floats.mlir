// RUN: neptune-opt %s --widen-floats --canonicalize | filecheck %s
// RUN: not neptune-opt %S/Inputs/float-bits.mlir --widen-floats 2>&1 | filecheck %s --check-prefix=BITS
// BITS: float-bits.mlir:2:{{[0-9]+}}: error: 'arith.bitcast' reads a float as bits

// Constants keep the values of their types, conversions vanish, integers stay.
// CHECK: func.func @f(%[[X:.*]]: tensor<4xf64>, %[[C:.*]]: tensor<4xi1>, %{{.*}}: f64) -> tensor<4xf64>
// CHECK-DAG: arith.constant -3.4028234663852886E+38 : f64
// CHECK-DAG: arith.constant dense<[0.10009765625, 0.2001953125, 1.000000e+00, 0xFFF0000000000000]> : tensor<4xf64>
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[C]], %{{.*}} : tensor<4xf64>, tensor<4xi1>, tensor<4xf64>)
// CHECK-NOT: extf
// CHECK-NOT: truncf
// CHECK: linalg.yield {{.*}} : f64
func.func @f(%x: tensor<4xf16>, %c: tensor<4xi1>, %s: f32) -> tensor<4xbf16> {
  %lowest = arith.constant 0xFF7FFFFF : f32
  %few = arith.constant dense<[0.1, 0.2, 1.0, 0xFF80]> : tensor<4xbf16>
  %empty = tensor.empty() : tensor<4xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x, %c, %few : tensor<4xf16>, tensor<4xi1>, tensor<4xbf16>) outs(%empty : tensor<4xbf16>) {
  ^bb0(%a: f16, %keep: i1, %b: bf16, %o: bf16):
    %wide = arith.extf %a : f16 to f32
    %shown = arith.select %keep, %wide, %lowest : f32
    %scaled = arith.mulf %shown, %s : f32
    %narrow = arith.truncf %scaled : f32 to bf16
    %sum = arith.addf %narrow, %b : bf16
    linalg.yield %sum : bf16
  } -> tensor<4xbf16>
  return %r : tensor<4xbf16>
}

// The identity of a reduction is a float too.
// CHECK: func.func @g(%{{.*}}: tensor<4x64xf64>) -> tensor<4xf64>
// CHECK: identity = 0xFFF0000000000000 : f64
func.func @g(%x: tensor<4x64xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x64xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 64>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// RUN: neptune-opt %s --apply-patterns | filecheck %s
// RUN: not neptune-opt %S/Inputs/log-gamma.mlir --apply-patterns 2>&1 | filecheck %s --check-prefix=REFUSED
// REQUIRES: torch_mlir

// REFUSED: log-gamma.mlir:2:8: error: 'chlo.lgamma' has no lowering
// REFUSED: hint: keep it out of the program

// CHECK-LABEL: func.func @floats
// CHECK: %[[S:.*]] = arith.mulf %arg0, %arg0 : tensor<4x?xf32>
// CHECK: %[[E:.*]] = math.erf %[[S]] : tensor<4x?xf32>
// CHECK: %[[A:.*]] = math.asinh %[[E]] : tensor<4x?xf32>
// CHECK: math.isinf %[[A]]
func.func @floats(%x: tensor<4x?xf32>) -> tensor<4x?xi1> {
  %s = chlo.square %x : tensor<4x?xf32> -> tensor<4x?xf32>
  %e = chlo.erf %s : tensor<4x?xf32> -> tensor<4x?xf32>
  %a = chlo.asinh %e : tensor<4x?xf32> -> tensor<4x?xf32>
  %i = chlo.is_inf %a : tensor<4x?xf32> -> tensor<4x?xi1>
  return %i : tensor<4x?xi1>
}

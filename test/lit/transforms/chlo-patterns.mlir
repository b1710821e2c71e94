// RUN: neptune-opt %s --apply-patterns | filecheck %s
// RUN: not neptune-opt %S/Inputs/zeta.mlir --apply-patterns 2>&1 | filecheck %s --check-prefix=REFUSED
// REQUIRES: torch_mlir

// REFUSED: zeta.mlir:2:8: error: 'chlo.zeta' has no lowering
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

// numbers of a formula have the extents of what it is of
// CHECK-LABEL: func.func @gamma
// CHECK: %[[X:.*]] = arith.extf %arg0 : tensor<4x?xbf16> to tensor<4x?xf32>
// CHECK: %[[N:.*]] = tensor.dim %[[X]]
// CHECK: tensor.splat %{{.*}}[%[[N]]] : tensor<4x?xf32>
// CHECK-NOT: chlo
// CHECK: math.log1p
// CHECK: arith.truncf %{{.*}} : tensor<4x?xf32> to tensor<4x?xbf16>
func.func @gamma(%x: tensor<4x?xbf16>) -> tensor<4x?xbf16> {
  %l = chlo.lgamma %x : tensor<4x?xbf16> -> tensor<4x?xbf16>
  return %l : tensor<4x?xbf16>
}

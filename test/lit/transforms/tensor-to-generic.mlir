// RUN: neptune-opt %s --tensor-to-generic --canonicalize | filecheck %s
// RUN: neptune-opt %s --tensor-to-generic=only=tensor.extract_slice | filecheck %s --check-prefix=SLICES

// Only the branch that is taken reads.
// CHECK-LABEL: func.func @pad(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[LOW:.*]]: index
// CHECK: %[[SIZE:.*]] = affine.apply #{{.*}}()[%[[LOW]]]
// CHECK: %[[NEW:.*]] = tensor.empty(%[[SIZE]])
// CHECK: linalg.generic {{.*}} outs(%[[NEW]] : tensor<?xf32>)
// CHECK: %[[I:.*]] = linalg.index 0
// CHECK: %[[FROM:.*]] = affine.apply #{{.*}}()[%[[I]], %[[LOW]]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %[[FROM]], %{{.*}}
// CHECK: scf.if %[[INSIDE]]
// CHECK: tensor.extract %[[X]][%[[FROM]]]
// CHECK: } else {
// CHECK: arith.index_cast %[[I]]
// SLICES-LABEL: func.func @pad(
// SLICES: tensor.pad
func.func @pad(%x: tensor<4xf32>, %low: index) -> tensor<?xf32> {
  %p = tensor.pad %x low[%low] high[2] {
  ^bb0(%i: index):
    %k = arith.index_cast %i : index to i64
    %v = arith.sitofp %k : i64 to f32
    tensor.yield %v : f32
  } : tensor<4xf32> to tensor<?xf32>
  return %p : tensor<?xf32>
}

// CHECK-LABEL: func.func @concat(
// CHECK-SAME: %[[A:.*]]: tensor<2xf32>, %[[B:.*]]: tensor<3xf32>
// CHECK: arith.cmpi slt, %{{.*}}, %c2
// CHECK: tensor.extract %[[A]]
// CHECK: } else {
// CHECK: tensor.extract %[[B]]
func.func @concat(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<5xf32> {
  %p = tensor.concat dim(0) %a, %b : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  return %p : tensor<5xf32>
}

// CHECK-LABEL: func.func @slice(
// CHECK: outs(%{{.*}} : tensor<3xf32>)
// CHECK: %[[K:.*]] = affine.apply
// CHECK: tensor.extract %arg0[%c2, %[[K]]]
// SLICES-LABEL: func.func @slice(
// SLICES: linalg.generic
func.func @slice(%x: tensor<4x8xf32>) -> tensor<3xf32> {
  %p = tensor.extract_slice %x[2, 1] [1, 3] [1, 2] : tensor<4x8xf32> to tensor<3xf32>
  return %p : tensor<3xf32>
}

// CHECK-LABEL: func.func @insert_slice(
// CHECK: arith.remui
// CHECK: scf.if
// CHECK: arith.divui
// CHECK: tensor.extract %arg0
// CHECK: } else {
// CHECK: tensor.extract %arg1
func.func @insert_slice(%x: tensor<3xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %p = tensor.insert_slice %x into %y[1] [3] [2] : tensor<3xf32> into tensor<8xf32>
  return %p : tensor<8xf32>
}

// What nobody wrote is any number.

// CHECK-LABEL: func.func @insert_into_new(
// CHECK: %[[ANY:.*]] = arith.constant 0.0
// CHECK: scf.if
// CHECK: tensor.extract %arg0
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[ANY]]
func.func @insert_into_new(%x: tensor<3xf32>) -> tensor<8xf32> {
  %new = tensor.empty() : tensor<8xf32>
  %p = tensor.insert_slice %x into %new[1] [3] [1] : tensor<3xf32> into tensor<8xf32>
  return %p : tensor<8xf32>
}

// CHECK-LABEL: func.func @insert(
// CHECK: %[[HIT:.*]] = arith.cmpi eq
// CHECK: arith.select %[[HIT]], %arg2
func.func @insert(%y: tensor<8xf32>, %i: index, %v: f32) -> tensor<8xf32> {
  %p = tensor.insert %v into %y[%i] : tensor<8xf32>
  return %p : tensor<8xf32>
}

// CHECK-LABEL: func.func @generate(
// CHECK: tensor.empty(%arg1)
// CHECK: %[[I:.*]] = linalg.index 0
// CHECK: tensor.extract %arg0[%[[I]]]
func.func @generate(%y: tensor<8xf32>, %n: index) -> tensor<?xf32> {
  %p = tensor.generate %n {
  ^bb0(%i: index):
    %v = tensor.extract %y[%i] : tensor<8xf32>
    tensor.yield %v : f32
  } : tensor<?xf32>
  return %p : tensor<?xf32>
}

// CHECK-LABEL: func.func @elements(
// CHECK: arith.select
// CHECK: arith.select
func.func @elements(%a: f32, %b: f32) -> tensor<3xf32> {
  %p = tensor.from_elements %a, %b, %a : tensor<3xf32>
  return %p : tensor<3xf32>
}

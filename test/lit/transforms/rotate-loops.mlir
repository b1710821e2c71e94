// Loops ask at their end whether they go on, and before the first time where the answer is not known.
// RUN: neptune-opt %s --rotate-loops | filecheck %s
// RUN: neptune-opt %s --rotate-loops --convert-scf-to-cf | filecheck %s --check-prefix=BLOCKS

// CHECK-LABEL: func.func @nested
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %c0, %arg1
// CHECK: %[[R:.*]] = scf.if %[[SOME]] -> (f32)
// CHECK: %[[OUTER:.*]]:2 = scf.while (%[[I:.*]] = %c0, %[[S:.*]] = %cst)
// CHECK-NOT: scf.if
// CHECK: %[[INNER:.*]]:2 = scf.while (%[[J:.*]] = %c0, %[[T:.*]] = %[[S]])
// CHECK: %[[NEXT:.*]] = arith.addi %[[J]], %c1
// CHECK: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %c8
// CHECK: scf.condition(%[[MORE]]) %[[NEXT]], %
// CHECK: scf.condition(%{{.*}}) %{{.*}}, %[[INNER]]#1
// CHECK: scf.yield %[[OUTER]]#1
// CHECK: scf.yield %cst
// CHECK: return %[[R]]

// The inner loop is one block that may branch to itself.
// BLOCKS-LABEL: func.func @nested
// BLOCKS: cf.cond_br
// BLOCKS: cf.br ^{{.*}}(%c0, %cst
// BLOCKS: cf.br ^[[LOOP:bb[0-9]+]](%c0
// BLOCKS-NEXT: ^[[LOOP]](
// BLOCKS-NEXT: memref.load
// BLOCKS: cf.cond_br %{{.*}}, ^[[LOOP]](
func.func @nested(%m: memref<?xf32>, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %z = arith.constant 0.0 : f32
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %z) -> f32 {
    %q = scf.for %j = %c0 to %c8 step %c1 iter_args(%t = %s) -> f32 {
      %x = memref.load %m[%j] : memref<?xf32>
      %y = arith.addf %t, %x : f32
      scf.yield %y : f32
    }
    scf.yield %q : f32
  }
  return %r : f32
}

// CHECK-LABEL: func.func @never
// CHECK-NOT: scf
// CHECK: return %arg0
func.func @never(%x: f32) -> f32 {
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c1 to %c1 step %c1 iter_args(%s = %x) -> f32 {
    %y = arith.addf %s, %s : f32
    scf.yield %y : f32
  }
  return %r : f32
}

// CHECK-LABEL: func.func @stores
// CHECK: scf.if %{{.*}} {
// CHECK: scf.while (%{{.*}} = %arg1) : (index) -> index
// CHECK-NOT: else
func.func @stores(%m: memref<?xf32>, %low: index, %high: index) {
  %c2 = arith.constant 2 : index
  %z = arith.constant 0.0 : f32
  scf.for %i = %low to %high step %c2 {
    memref.store %z, %m[%i] : memref<?xf32>
  }
  return
}

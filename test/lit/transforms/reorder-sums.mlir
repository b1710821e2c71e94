// RUN: neptune-opt %s --reorder-sums=order=1 | filecheck %s
// RUN: neptune-opt %s --reorder-sums | filecheck %s --check-prefix=SAME
// RUN: neptune-opt %s --reorder-sums=order=4 | filecheck %s --check-prefix=BLOCKS
// RUN: neptune-opt %s --reorder-sums=order=5 | filecheck %s --check-prefix=HALVES
// RUN: neptune-opt %s --reorder-sums=order=6 | filecheck %s --check-prefix=SIGNS
// RUN: neptune-opt %s --reorder-sums=order=24 | filecheck %s --check-prefix=EXACT

// A sum starts in the middle (9 of 16 parts) and goes backwards, round the end.
// CHECK-LABEL: @sum
// CHECK: scf.for %[[I:.*]] = %c0
// CHECK: scf.for %[[J:.*]] = %c0
// CHECK: %[[LENGTH:.*]] = arith.subi %{{.*}}, %c0
// CHECK: %[[PART:.*]] = arith.constant 9 : index
// CHECK: arith.subi %{{.*}}, %[[J]]
// CHECK: %[[MOVED:.*]] = arith.remui %{{.*}}, %[[LENGTH]]
// CHECK: %[[PLACE:.*]] = arith.addi %[[MOVED]], %c0
// CHECK: memref.load %{{.*}}[%[[I]], %[[PLACE]]]
// The last but one adds up four elements, and then what they make.
// BLOCKS-LABEL: @sum
// BLOCKS: %[[PARTS:.*]] = memref.alloc() : memref<4xf32>
// BLOCKS: scf.for
// BLOCKS: %[[FIRST:.*]] = arith.cmpi eq
// BLOCKS: %[[PART:.*]] = memref.load %[[PARTS]]
// BLOCKS: %[[BEFORE:.*]] = arith.select %[[FIRST]], %{{.*}}, %[[PART]]
// BLOCKS: %[[MADE:.*]] = arith.addf %[[BEFORE]], %{{.*}} : f32
// BLOCKS: memref.store %[[MADE]], %[[PARTS]]
// BLOCKS: scf.if
// BLOCKS: arith.addf %{{.*}}, %[[MADE]]
// BLOCKS: memref.store %{{.*}}, %arg1
// BLOCKS: memref.dealloc %[[PARTS]]
// Every other element, and then what is left: two sums.
// HALVES-LABEL: @sum
// HALVES: %[[PARTS:.*]] = memref.alloc() : memref<4xf32>
// HALVES: scf.for
// HALVES: %[[HALF:.*]] = arith.divui
// HALVES: %[[EARLY:.*]] = arith.cmpi ult, %{{.*}}, %[[HALF]]
// HALVES: arith.select %[[EARLY]]
// HALVES: memref.store %{{.*}}, %[[PARTS]]
// HALVES: scf.if
// HALVES: memref.store %{{.*}}, %arg1
// What is below 0 is a sum of its own until the end.
// SIGNS-LABEL: @sum
// SIGNS: %[[PARTS:.*]] = memref.alloc() : memref<4xf32>
// SIGNS: scf.for
// SIGNS: %[[BELOW:.*]] = arith.cmpf olt
// SIGNS: %[[UNDER:.*]] = arith.select %[[BELOW]]
// SIGNS: %[[ABOVE:.*]] = arith.select %[[BELOW]]
// SIGNS: %[[SUM:.*]] = arith.addf %{{.*}}, %[[UNDER]]
// SIGNS: memref.store %[[SUM]], %[[PARTS]]
// SIGNS: arith.addf %{{.*}}, %[[ABOVE]]
// SIGNS: scf.if
// SIGNS: memref.store %{{.*}}, %arg1
// In f64 there is one rounding, at the end.
// EXACT-LABEL: @sum
// EXACT: %[[WIDE:.*]] = memref.alloc() : memref<4xf64>
// EXACT: scf.for
// EXACT: %[[TERM:.*]] = arith.extf %{{.*}} : f32 to f64
// EXACT: %[[SUM:.*]] = arith.addf %{{.*}}, %[[TERM]] : f64
// EXACT: memref.store %[[SUM]], %[[WIDE]]
// EXACT: scf.if
// EXACT: arith.truncf %[[SUM]] : f64 to f32
// EXACT: memref.store %{{.*}}, %arg1
// SAME-LABEL: @sum
// SAME-NOT: arith.remui
func.func @sum(%x: memref<4x8xf32>, %y: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c4 step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %a = memref.load %x[%i, %j] : memref<4x8xf32>
      %s = memref.load %y[%i] : memref<4xf32>
      %t = arith.addf %s, %a : f32
      memref.store %t, %y[%i] : memref<4xf32>
    }
  }
  return
}

// Which of two equal maxima comes first, and where elements go, is no matter of luck.
// CHECK-LABEL: @others
// CHECK-NOT: arith.remui
func.func @others(%x: memref<8xf32>, %y: memref<f32>, %z: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %j = %c0 to %c8 step %c1 {
    %a = memref.load %x[%j] : memref<8xf32>
    %m = memref.load %y[] : memref<f32>
    %t = arith.maximumf %m, %a : f32
    memref.store %t, %y[] : memref<f32>
  }
  scf.for %j = %c0 to %c8 step %c1 {
    %a = memref.load %x[%j] : memref<8xf32>
    %t = arith.addf %a, %a : f32
    memref.store %t, %z[%j] : memref<8xf32>
  }
  return
}

// The product of a sum is rounded with it; that of a difference is none of its business.
// CHECK-LABEL: @residual
// CHECK: arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: %[[REST:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK: %[[SUM:.*]] = math.fma %[[REST]], %[[REST]], %{{.*}} : f32
// CHECK: memref.store %[[SUM]]
func.func @residual(%x: memref<8xf32>, %y: memref<f32>, %b: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %j = %c0 to %c8 step %c1 {
    %a = memref.load %x[%j] : memref<8xf32>
    %s = memref.load %y[] : memref<f32>
    %p = arith.mulf %a, %b : f32
    %d = arith.subf %a, %p : f32
    %q = arith.mulf %d, %d : f32
    %t = arith.addf %s, %q : f32
    memref.store %t, %y[] : memref<f32>
  }
  return
}

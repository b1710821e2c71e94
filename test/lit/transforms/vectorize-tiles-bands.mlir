// RUN: neptune-opt %s --linalg-generalize-named-ops --outline-kernels --vectorize-tiles=vector-bits=256,vector-registers=16 --canonicalize | filecheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#kj = affine_map<(i, j, k) -> (k, j)>
#p = affine_map<(i, j) -> (i, j)>

// Scores are read where j <= i + n alone: for 16 columns from j on, rows begin at j - n. The weights
// are 0 elsewhere: for 6 rows from i on, those before i + 6 + n are summed.
// CHECK-LABEL: func.func @banded
// CHECK: scf.for %[[STRIP:.*]] = %c0 to %c32 step %c16 {
// CHECK: scf.for %[[J:.*]] = %c0 to %c32 step %c16 {
// CHECK-NEXT: %[[PLACE:.*]] = arith.subi %[[J]], %[[STRIP]] : index
// CHECK-NEXT: %[[FIRST:.*]] = arith.subi %[[PLACE]], %arg4 : index
// CHECK-NEXT: %[[DEAD:.*]] = arith.maxsi %[[FIRST]], %c0 : index
// CHECK-NEXT: %[[BLOCKS:.*]] = arith.divui %[[DEAD]], %c6 : index
// CHECK-NEXT: %[[LOW:.*]] = arith.muli %[[BLOCKS]], %c6 : index
// CHECK-NEXT: scf.for %{{.*}} = %[[LOW]] to %c12 step %c6 {
// CHECK: math.exp
// CHECK: scf.for %[[I:.*]] = %c0 to %c12 step %c6 {
// CHECK-NEXT: %[[ROW:.*]] = arith.addi %[[STRIP]], %[[I]] : index
// CHECK: %[[END:.*]] = arith.addi %[[ROW]], %c6 : index
// CHECK-NEXT: %[[MOST:.*]] = arith.addi %[[END]], %arg4 : index
// CHECK-NEXT: %[[HIGH:.*]] = arith.minsi %[[MOST]], %c32 : index
// CHECK-NEXT: scf.for %{{.*}} = %c0 to %[[HIGH]] step %c4 iter_args
// Who reads all scores needs all, and weights that are 1 elsewhere count.
// CHECK-LABEL: func.func @whole
// CHECK-NOT: arith.divui {{.*}}, %c6
// CHECK-NOT: arith.minsi {{.*}}, %c32
// CHECK: return
func.func @f(%q: memref<32x32xf32>, %k: memref<32x32xf32>, %v: memref<32x32xf32>, %n: index,
             %out: memref<32x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  scf.forall (%b) in (1) {
    %s = memref.alloc() : memref<32x32xf32>
    linalg.fill ins(%zero : f32) outs(%s : memref<32x32xf32>)
    linalg.generic {indexing_maps = [#ik, #jk, #ij],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %k : memref<32x32xf32>, memref<32x32xf32>) outs(%s : memref<32x32xf32>) {
    ^bb0(%a: f32, %c: f32, %acc: f32):
      %m = arith.mulf %a, %c : f32
      %t = arith.addf %acc, %m : f32
      linalg.yield %t : f32
    }
    linalg.generic {indexing_maps = [#p], iterator_types = ["parallel", "parallel"]}
        outs(%s : memref<32x32xf32>) {
    ^bb0(%x: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %far = arith.addi %i, %n : index
      %c = arith.cmpi sle, %j, %far : index
      %e = math.exp %x : f32
      %w = arith.select %c, %e, %zero : f32
      linalg.yield %w : f32
    }
    linalg.generic {indexing_maps = [#ik, #kj, #ij],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %v : memref<32x32xf32>, memref<32x32xf32>) outs(%out : memref<32x32xf32>) {
    ^bb0(%a: f32, %c: f32, %acc: f32):
      %m = arith.mulf %a, %c : f32
      %t = arith.addf %acc, %m : f32
      linalg.yield %t : f32
    }
  } {neptune.kernel = "banded"}
  scf.forall (%b) in (1) {
    %s = memref.alloc() : memref<32x32xf32>
    linalg.fill ins(%zero : f32) outs(%s : memref<32x32xf32>)
    linalg.generic {indexing_maps = [#ik, #jk, #ij],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %k : memref<32x32xf32>, memref<32x32xf32>) outs(%s : memref<32x32xf32>) {
    ^bb0(%a: f32, %c: f32, %acc: f32):
      %m = arith.mulf %a, %c : f32
      %t = arith.addf %acc, %m : f32
      linalg.yield %t : f32
    }
    linalg.generic {indexing_maps = [#p], iterator_types = ["parallel", "parallel"]}
        outs(%s : memref<32x32xf32>) {
    ^bb0(%x: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %far = arith.addi %i, %n : index
      %c = arith.cmpi sle, %j, %far : index
      %e = math.exp %x : f32
      %w = arith.select %c, %e, %one : f32
      %both = arith.addf %w, %x : f32
      linalg.yield %both : f32
    }
    linalg.generic {indexing_maps = [#ik, #kj, #ij],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %v : memref<32x32xf32>, memref<32x32xf32>) outs(%out : memref<32x32xf32>) {
    ^bb0(%a: f32, %c: f32, %acc: f32):
      %m = arith.mulf %a, %c : f32
      %t = arith.addf %acc, %m : f32
      linalg.yield %t : f32
    }
  } {neptune.kernel = "whole"}
  return
}

// RUN: neptune-opt %s --points-to-kernels=target=gfx942 | filecheck %s
// RUN: neptune-opt %s --points-to-kernels --distribute-tiles=entry=window | filecheck %s --check-prefix=CODE
// RUN: not neptune-opt %S/Inputs/points-in-order.mlir --points-to-kernels 2>&1 | filecheck %s --check-prefix=ORDER
// RUN: not neptune-opt %S/Inputs/points-no-loops.mlir --points-to-kernels 2>&1 | filecheck %s --check-prefix=LOOPS

// ORDER: points-in-order.mlir:4:10: error: 'linalg.generic' outside of any kernel writes an element in several steps
// LOOPS: points-no-loops.mlir:3:8: error: 'linalg.pack' outside of any kernel has no indexing maps

// Parallel loops become points, the others loops; what a result starts from is read; the new tensor
// is not what it started from, which others may read; the host takes sizes.
// CHECK-LABEL: func.func @window(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[W:.*]]: tensor<3xf32>, %[[START:.*]]: tensor<?x6xf32>
// CHECK: %[[N:.*]] = tensor.dim %[[START]]
// CHECK: %[[M:.*]] = tensor.dim %[[START]]
// CHECK: %[[NEW:.*]] = tensor.empty(%[[M]])
// CHECK: scf.forall (%[[I:.*]], %[[J:.*]]) in (%[[N]], 6) shared_outs(%[[OUT:.*]] = %[[NEW]])
// CHECK: %[[BEFORE:.*]] = tensor.extract %[[START]][%[[I]], %[[J]]]
// CHECK: %[[SUM:.*]] = scf.for %[[K:.*]] = %{{.*}} iter_args(%[[ACC:.*]] = %[[BEFORE]]) -> (f32)
// CHECK: %[[AT:.*]] = affine.apply #{{.*}}(%[[I]], %[[J]], %[[K]])
// CHECK: %[[A:.*]] = tensor.extract %[[X]][%[[I]], %[[AT]]]
// CHECK: %[[B:.*]] = tensor.extract %[[W]][%[[K]]]
// CHECK: arith.mulf %[[A]], %[[B]]
// CHECK: scf.yield
// CHECK: %[[ELEMENT:.*]] = tensor.from_elements %[[SUM]] : tensor<f32>
// CHECK: tensor.parallel_insert_slice %[[ELEMENT]] into %[[OUT]][%[[I]], %[[J]]] [1, 1] [1, 1]
// CHECK: neptune.kernel = "window_points_0", neptune.points = 128
// CHECK-SAME: neptune.target = "gfx942", neptune.warps = 2

// CODE: neptune.plan = "{{.*}}ceildiv{{.*}}mul{{.*}}dim{{.*}}2, 0], 6], 128
// CODE: gpu.func @window_points_0(
// CODE-SAME: known_block_size = array<i32: 128, 1, 1>
// CODE: %[[INSIDE:.*]] = arith.cmpi slt
// CODE: scf.if %[[INSIDE]]
// CODE: scf.for
// CODE: llvm.load
// CODE: llvm.store
func.func @window(%x: tensor<?x8xf32>, %w: tensor<3xf32>, %start: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j + k)>,
      affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x8xf32>, tensor<3xf32>) outs(%start : tensor<?x6xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// A named op; every loop is reduced, so there is one point.
// CHECK-LABEL: func.func @dot(
// CHECK: scf.forall (%{{.*}}) in (1)
// CHECK: tensor.extract %{{.*}}[] : tensor<f32>
// CHECK: scf.for
// CHECK: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[] [] []
func.func @dot(%x: tensor<8xf32>, %y: tensor<8xf32>, %start: tensor<f32>) -> tensor<f32> {
  %r = linalg.dot ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%start : tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}

// A gather; the size of the table is taken by the host, and the position may be in a region.
// CHECK-LABEL: func.func @gather(
// CHECK: %[[ROWS:.*]] = tensor.dim %[[TABLE:.*]], %
// CHECK: scf.forall (%[[P:.*]], %[[Q:.*]]) in
// CHECK: %[[ID:.*]] = tensor.extract %{{.*}}[%[[P]]]
// CHECK: arith.cmpi slt, %{{.*}}, %[[ROWS]]
// CHECK: scf.if
// CHECK: tensor.extract %[[TABLE]][%{{.*}}, %[[Q]]]
// CHECK-NOT: linalg.
func.func @gather(%table: tensor<?x4xf32>, %ids: tensor<5xindex>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %e = tensor.empty() : tensor<5x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<5xindex>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%id: index, %u: f32):
    %j = linalg.index 1 : index
    %rows = tensor.dim %table, %c0 : tensor<?x4xf32>
    %there = arith.cmpi slt, %id, %rows : index
    %v = scf.if %there -> (f32) {
      %found = tensor.extract %table[%id, %j] : tensor<?x4xf32>
      scf.yield %found : f32
    } else {
      scf.yield %zero : f32
    }
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}

// A running sum and its end: the first is a strip of memory, filled step by step; the second is carried.
// CHECK-LABEL: func.func @running(
// CHECK: scf.forall (%[[ROW:.*]]) in (5) shared_outs(%[[ALL:.*]] = %{{.*}}, %[[ENDS:.*]] = %{{.*}})
// CHECK: %[[STRIP:.*]] = tensor.extract_slice %[[ALL]][0, %[[ROW]]] [9, 1] [1, 1] : tensor<9x5xf32> to tensor<9xf32>
// CHECK: %[[DONE:.*]]:2 = scf.for %[[STEP:.*]] = {{.*}} iter_args(%[[PART:.*]] = %[[STRIP]], %[[S:.*]] = %{{.*}})
// CHECK: %[[T:.*]] = arith.addf
// CHECK: %[[PUT:.*]] = tensor.insert %[[T]] into %[[PART]][%[[STEP]]]
// CHECK: scf.yield %[[PUT]], %[[T]]
// CHECK: tensor.parallel_insert_slice %[[DONE]]#0 into %[[ALL]][0, %[[ROW]]] [9, 1] [1, 1]
func.func @running(%x: tensor<5x9xf32>, %start: tensor<5xf32>) -> (tensor<9x5xf32>, tensor<5xf32>) {
  %e = tensor.empty() : tensor<9x5xf32>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x9xf32>) outs(%e, %start : tensor<9x5xf32>, tensor<5xf32>) {
  ^bb0(%v: f32, %o: f32, %s: f32):
    %t = arith.addf %s, %v : f32
    linalg.yield %t, %t : f32, f32
  } -> (tensor<9x5xf32>, tensor<5xf32>)
  return %r#0, %r#1 : tensor<9x5xf32>, tensor<5xf32>
}

// RUN: neptune-opt %s --longest-first --split-input-file | filecheck %s

// A number of an argument says how long the stream of each %b is: a kernel ahead finds the order, and
// all programs of one %b stand together. A launch with few programs or short streams has no order.
// CHECK-LABEL: func.func @reads_lengths
// CHECK-SAME: (%[[X:.*]]: tensor<?x?xf32>, %[[N:.*]]: tensor<?xi32>)
// CHECK: arith.select
// CHECK: arith.select
// CHECK: arith.select
// CHECK: %[[COUNT:.*]] = arith.select
// CHECK: %[[ORDER:.*]] = scf.forall (%[[I:.*]], %[[LANE:.*]]) in (%[[COUNT]], 32) shared_outs(%[[OUT:.*]] = %{{.*}}) -> (tensor<?xi32>)
// CHECK: tensor.extract %[[N]][%[[I]]]
// CHECK-NEXT: arith.index_cast
// CHECK-NEXT: affine.max
// CHECK: %[[PART:.*]] = scf.for %[[J:.*]] = %{{.*}} iter_args
// CHECK: %[[OTHER:.*]] = affine.apply #{{.*}}(%[[J]], %[[LANE]])
// CHECK: %[[THERE:.*]] = affine.min #{{.*}}(%[[OTHER]], %{{.*}})
// CHECK: tensor.extract %[[N]][%[[THERE]]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[PART]] : index to i32
// CHECK: %[[ALL:.*]] = gpu.subgroup_reduce add %[[WORD]] cluster(size = 32)
// CHECK: %[[RANK:.*]] = arith.index_cast %[[ALL]]
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[I]] : index to i32
// CHECK: %[[E:.*]] = tensor.from_elements %[[NUMBER]]
// CHECK: tensor.parallel_insert_slice %[[E]] into %[[OUT]][%[[RANK]]] [1] [1]
// CHECK: neptune.kernel = "sum_order", neptune.of_mask, neptune.points
// CHECK: scf.forall (%[[C:.*]], %[[B:.*]], %[[H:.*]]) in
// CHECK: %[[PLACE:.*]]:2 = scf.if
// CHECK: %[[FIRST:.*]] = tensor.extract %[[ORDER]]
// CHECK: %[[AT:.*]] = arith.index_cast %[[FIRST]]
// CHECK: scf.yield %{{.*}}, %[[AT]]
// CHECK: scf.yield %[[C]], %[[B]]
// CHECK: tensor.extract %[[N]][%[[PLACE]]#1]
// CHECK: tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[PLACE]]#0, %[[PLACE]]#1, %[[H]]]
module attributes {neptune.chip = "sm_90a"} {
  func.func @reads_lengths(%x: tensor<?x?xf32>, %n: tensor<?xi32>) -> tensor<?x?x4xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %f0 = arith.constant 0.0 : f32
    %batch = tensor.dim %x, %c0 : tensor<?x?xf32>
    %most = tensor.dim %x, %c1 : tensor<?x?xf32>
    %out = tensor.empty(%batch, %batch) : tensor<?x?x4xf32>
    %r = scf.forall (%c, %b, %h) in (%batch, %batch, 4) shared_outs(%o = %out) -> (tensor<?x?x4xf32>) {
      %number = tensor.extract %n[%b] : tensor<?xi32>
      %length = arith.index_cast %number : i32 to index
      %end = affine.min affine_map<(l, m) -> (l, m)>(%length, %most)
      %sum = scf.for %j = %c0 to %end step %c32 iter_args(%s = %f0) -> (f32) {
        scf.yield %s : f32
      }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %e into %o[%c, %b, %h] [1, 1, 1] [1, 1, 1] : tensor<f32> into tensor<?x?x4xf32>
      }
    } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>, #gpu.block<linear_dim_2>], neptune.kernel = "sum"}
    return %r : tensor<?x?x4xf32>
  }
}

// -----

// What a kernel found (a mask of data) orders nothing: neighbours share what they stream there.
// CHECK-LABEL: func.func @reads_a_result
// CHECK-NOT: _order
module attributes {neptune.chip = "sm_90a"} {
  func.func @reads_a_result(%x: tensor<?xi32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %f0 = arith.constant 0.0 : f32
    %count = tensor.dim %x, %c0 : tensor<?xi32>
    %ends = tensor.cast %x : tensor<?xi32> to tensor<?xi32>
    %made = tensor.empty(%count) : tensor<?xi32>
    %found = linalg.copy ins(%ends : tensor<?xi32>) outs(%made : tensor<?xi32>) -> tensor<?xi32>
    %out = tensor.empty(%count) : tensor<?xf32>
    %r = scf.forall (%b) in (%count) shared_outs(%o = %out) -> (tensor<?xf32>) {
      %number = tensor.extract %found[%b] : tensor<?xi32>
      %end = arith.index_cast %number : i32 to index
      %sum = scf.for %j = %c0 to %end step %c32 iter_args(%s = %f0) -> (f32) {
        scf.yield %s : f32
      }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %e into %o[%b] [1] [1] : tensor<f32> into tensor<?xf32>
      }
    } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "sum"}
    return %r : tensor<?xf32>
  }
}

// -----

// A loop that goes on where the one before ends: together they are one span, and a number that is
// read is compared as it is.
// CHECK-LABEL: func.func @goes_on
// CHECK: = scf.for %
// CHECK-NEXT: affine.apply
// CHECK-NEXT: affine.apply
// CHECK-NEXT: affine.min
// CHECK-NEXT: %[[OTHER:.*]] = tensor.extract
// CHECK-NEXT: %[[ITS:.*]] = arith.index_cast %[[OTHER]]
// CHECK-NEXT: affine.max #{{.*}}(%[[ITS]])
// CHECK-NEXT: affine.apply
// CHECK-NEXT: arith.cmpi slt
// CHECK: "sum_order"
module attributes {neptune.chip = "sm_90a"} {
  func.func @goes_on(%n: tensor<?xi32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %f0 = arith.constant 0.0 : f32
    %batch = tensor.dim %n, %c0 : tensor<?xi32>
    %out = tensor.empty(%batch) : tensor<?xf32>
    %r = scf.forall (%b) in (%batch) shared_outs(%o = %out) -> (tensor<?xf32>) {
      %number = tensor.extract %n[%b] : tensor<?xi32>
      %end = arith.index_cast %number : i32 to index
      %whole = affine.apply affine_map<(l) -> ((l floordiv 32) * 32)>(%end)
      %some = scf.for %j = %c0 to %whole step %c32 iter_args(%s = %f0) -> (f32) {
        scf.yield %s : f32
      }
      %sum = scf.for %j = %whole to %end step %c32 iter_args(%s = %some) -> (f32) {
        scf.yield %s : f32
      }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %e into %o[%b] [1] [1] : tensor<f32> into tensor<?xf32>
      }
    } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "sum"}
    return %r : tensor<?xf32>
  }
}

// -----

// A stream is the longer, the larger the number is, also where a program has a part of it: sequences
// are ranked by the number, and nothing is divided for each pair of them. A window's stream is not:
// its length is computed.
// CHECK-LABEL: func.func @parts
// CHECK: scf.forall {{.*}} shared_outs
// CHECK-NOT: arith.divui
// CHECK: neptune.kernel = "part_order"
// CHECK: scf.forall {{.*}} shared_outs
// CHECK: scf.forall {{.*}} shared_outs
// CHECK: scf.for
// CHECK: %[[TO:.*]] = arith.index_cast
// CHECK-NEXT: %[[FROM:.*]] = affine.max #{{.*}}(%[[TO]])
// CHECK-NEXT: affine.apply #{{.*}}(%[[TO]], %[[FROM]])
// CHECK: neptune.kernel = "window_order"
module attributes {neptune.chip = "sm_90a"} {
  func.func @parts(%x: tensor<?x?xf32>, %n: tensor<?xi32>) -> (tensor<?x?x4xf32>, tensor<?x4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %f0 = arith.constant 0.0 : f32
    %batch = tensor.dim %x, %c0 : tensor<?x?xf32>
    %parts = tensor.dim %x, %c1 : tensor<?x?xf32>
    %out = tensor.empty(%parts, %batch) : tensor<?x?x4xf32>
    %r = scf.forall (%c, %b, %h) in (%parts, %batch, 4) shared_outs(%o = %out) -> (tensor<?x?x4xf32>) {
      %number = tensor.extract %n[%b] : tensor<?xi32>
      %length = arith.index_cast %number : i32 to index
      %tiles = affine.apply affine_map<(l) -> (l ceildiv 32)>(%length)
      %before = arith.muli %tiles, %c : index
      %first = arith.divui %before, %parts : index
      %begin = affine.apply affine_map<(l) -> (l * 32)>(%first)
      %next = arith.addi %c, %c1 : index
      %behind = arith.muli %tiles, %next : index
      %last = arith.divui %behind, %parts : index
      %end = affine.min affine_map<(l, m) -> (l * 32, m)>(%last, %length)
      %sum = scf.for %j = %begin to %end step %c32 iter_args(%s = %f0) -> (f32) {
        scf.yield %s : f32
      }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %e into %o[%c, %b, %h] [1, 1, 1] [1, 1, 1] : tensor<f32> into tensor<?x?x4xf32>
      }
    } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>, #gpu.block<linear_dim_2>], neptune.kernel = "part"}
    %out2 = tensor.empty(%batch) : tensor<?x4xf32>
    %w = scf.forall (%b, %h) in (%batch, 4) shared_outs(%o = %out2) -> (tensor<?x4xf32>) {
      %number = tensor.extract %n[%b] : tensor<?xi32>
      %length = arith.index_cast %number : i32 to index
      %begin = affine.max affine_map<(l) -> (l - 5000, 0)>(%length)
      %sum = scf.for %j = %begin to %length step %c32 iter_args(%s = %f0) -> (f32) {
        scf.yield %s : f32
      }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %e into %o[%b, %h] [1, 1] [1, 1] : tensor<f32> into tensor<?x4xf32>
      }
    } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>], neptune.kernel = "window"}
    return %r, %w : tensor<?x?x4xf32>, tensor<?x4xf32>
  }
}

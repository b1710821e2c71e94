// RUN: neptune-opt %s --positions-ahead | filecheck %s

#i = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>
#start = affine_map<(t) -> (t * 64)>

// The loop begins at the least of a tile: a kernel ahead finds it for each %t, whatever %h is.
// CHECK-LABEL: func.func @begins_at_the_least
// CHECK-SAME: (%[[FIRST:.*]]: tensor<128xi32>,
// CHECK: %[[E:.*]] = tensor.empty() : tensor<2xi32>
// CHECK: %[[P:.*]] = scf.forall (%[[T:.*]]) in (2) shared_outs(%[[O:.*]] = %[[E]]) -> (tensor<2xi32>)
// CHECK: %[[S:.*]] = tensor.extract_slice %[[FIRST]]
// CHECK: %[[LEAST:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<64xi32>)
// CHECK: tensor.parallel_insert_slice %[[LEAST]] into %[[O]][%[[T]]] [1] [1] : tensor<i32> into tensor<2xi32>
// CHECK: neptune.kernel = "rows_positions", neptune.of_mask
// CHECK: scf.forall (%[[T2:.*]], %[[H:.*]]) in (2, 3)
// CHECK-NOT: linalg.generic
// CHECK: %[[AT:.*]] = tensor.extract %[[P]][%[[T2]]] : tensor<2xi32>
// CHECK: %[[LOW:.*]] = arith.index_cast %[[AT]]
// CHECK: scf.for %{{.*}} = %[[LOW]] to
func.func @begins_at_the_least(%first: tensor<128xi32>, %x: tensor<128xf32>, %n: index) -> tensor<2x3xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %most = arith.constant 2147483647 : i32
  %f0 = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<2x3xf32>
  %r = scf.forall (%t, %h) in (2, 3) shared_outs(%o = %out) -> (tensor<2x3xf32>) {
    %at = affine.apply #start(%t)
    %tile = tensor.extract_slice %first[%at] [64] [1] : tensor<128xi32> to tensor<64xi32>
    %e = tensor.empty() : tensor<i32>
    %init = linalg.fill ins(%most : i32) outs(%e : tensor<i32>) -> tensor<i32>
    %least = linalg.generic {indexing_maps = [#i, #none], iterator_types = ["reduction"]}
        ins(%tile : tensor<64xi32>) outs(%init : tensor<i32>) {
    ^bb0(%a: i32, %b: i32):
      %m = arith.minsi %a, %b : i32
      linalg.yield %m : i32
    } -> tensor<i32>
    %number = tensor.extract %least[] : tensor<i32>
    %low = arith.index_cast %number : i32 to index
    %se = tensor.empty() : tensor<f32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<f32>) -> tensor<f32>
    %sum = scf.for %j = %low to %n step %c64 iter_args(%acc = %s0) -> (tensor<f32>) {
      %y = tensor.extract_slice %x[%j] [64] [1] : tensor<128xf32> to tensor<64xf32>
      %s = linalg.generic {indexing_maps = [#i, #none], iterator_types = ["reduction"]}
          ins(%y : tensor<64xf32>) outs(%acc : tensor<f32>) {
      ^bb0(%a: f32, %b: f32):
        %p = arith.addf %a, %b : f32
        linalg.yield %p : f32
      } -> tensor<f32>
      scf.yield %s : tensor<f32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %o[%t, %h] [1, 1] [1, 1] : tensor<f32> into tensor<2x3xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>], neptune.kernel = "rows"}
  return %r : tensor<2x3xf32>
}

// A number of a tensor that is there when the kernel begins stays where it is.
// CHECK-LABEL: func.func @is_there
// CHECK-COUNT-1: scf.forall (
// CHECK-NOT: scf.forall (
func.func @is_there(%first: tensor<2xindex>, %x: tensor<128xf32>) -> tensor<128xf32> {
  %out = tensor.empty() : tensor<128xf32>
  %r = scf.forall (%t) in (2) shared_outs(%o = %out) -> (tensor<128xf32>) {
    %at = tensor.extract %first[%t] : tensor<2xindex>
    %tile = tensor.extract_slice %x[%at] [64] [1] : tensor<128xf32> to tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %tile into %o[%at] [64] [1] : tensor<64xf32> into tensor<128xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "copies"}
  return %r : tensor<128xf32>
}

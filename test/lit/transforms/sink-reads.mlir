// RUN: neptune-opt %s --sink-reads | filecheck %s
// RUN: not neptune-opt %S/Inputs/extent-from-data.mlir --sink-reads 2>&1 | filecheck %s --check-prefix=EXTENT

// EXTENT: extent-from-data.mlir:4:8: error: 'tensor.empty' takes a number that is read from a tensor

// What a kernel takes from memory by way of the host, it reads itself; the host is left with sizes.
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME: %[[X:.*]]: tensor<8xf32>, %[[S:.*]]: tensor<4xf32>, %[[AT:.*]]: tensor<2xindex>
// CHECK-NOT: tensor.extract
// CHECK: scf.forall
// CHECK: %[[I:.*]] = tensor.extract %[[AT]]
// CHECK: %[[J:.*]] = arith.addi %[[I]]
// CHECK: %[[V:.*]] = tensor.extract %[[S]][%[[J]]]
// CHECK: linalg.generic
// CHECK: arith.mulf %{{.*}}, %[[V]]
// CHECK: linalg.generic
// CHECK: ^bb0
// CHECK: %[[AGAIN:.*]] = tensor.extract %[[AT]]
// CHECK: tensor.extract %[[X]][%[[AGAIN]]]
func.func @scaled(%x: tensor<8xf32>, %s: tensor<4xf32>, %at: tensor<2xindex>)
    -> (tensor<8xf32>, tensor<2xf32>) {
  %c1 = arith.constant 1 : index
  %i = tensor.extract %at[%c1] : tensor<2xindex>
  %j = arith.addi %i, %c1 : index
  %v = tensor.extract %s[%j] : tensor<4xf32>
  %unused = tensor.extract %s[%i] : tensor<4xf32>
  %e = tensor.empty() : tensor<8xf32>
  %r = scf.forall (%p) in (1) shared_outs(%o = %e) -> (tensor<8xf32>) {
    %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%a: f32, %u: f32):
      %m = arith.mulf %a, %v : f32
      linalg.yield %m : f32
    } -> tensor<8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[0] [8] [1] : tensor<8xf32> into tensor<8xf32>
    }
  }
  %e2 = tensor.empty() : tensor<2xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      outs(%e2 : tensor<2xf32>) {
  ^bb0(%u: f32):
    %w = tensor.extract %x[%i] : tensor<8xf32>
    linalg.yield %w : f32
  } -> tensor<2xf32>
  return %r, %q : tensor<8xf32>, tensor<2xf32>
}

// RUN: neptune-opt %s --place-tiles | filecheck %s

// The load goes to scratch of its own, and so does the exponential: the load may turn out to need
// none.
// CHECK-LABEL: func.func @f
// CHECK: %[[S:.*]] = tensor.extract_slice %arg0
// CHECK: %[[T:.*]] = linalg.copy {{.*}}ins(%[[S]]
// CHECK: tensor.empty
// CHECK: %[[E:.*]] = tensor.empty
// CHECK: linalg.generic {{.*}} ins(%[[T]] : tensor<64xf32>) outs(%[[E]] : tensor<64xf32>)
func.func @f(%x: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %out = scf.forall (%i) in (%n) shared_outs(%dst = %empty) -> (tensor<?x64xf32>) {
    %t = tensor.extract_slice %x[%i, 0] [1, 64] [1, 1] : tensor<?x64xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%t : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%a: f32, %u: f32):
      %y = math.exp %a : f32
      linalg.yield %y : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %dst[%i, 0] [1, 64] [1, 1] : tensor<64xf32> into tensor<?x64xf32>
    }
  }
  return %out : tensor<?x64xf32>
}

// What a loop yields is built where it came in, or copied there when the old value is read later.
// CHECK-LABEL: func.func @carried
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK:   %[[SUM:.*]] = linalg.generic {{.*}} outs(%[[A]] : tensor<8xf32>)
// CHECK:   %[[COPY:.*]] = linalg.copy {{.*}}ins(%[[B]] : tensor<8xf32>)
// CHECK:   %[[NEW:.*]] = linalg.generic {{.*}} outs(%[[COPY]] : tensor<8xf32>)
// CHECK:   %[[MIXED:.*]] = linalg.generic {{.*}} outs(%[[SUM]] : tensor<8xf32>)
// CHECK:   %[[BACK:.*]] = linalg.copy {{.*}}ins(%[[NEW]] : tensor<8xf32>) outs(%[[B]] : tensor<8xf32>)
// CHECK:   scf.yield %[[MIXED]], %[[BACK]]
func.func @carried(%x: tensor<8x16xf32>, %n: index) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %r:2 = scf.for %i = %zero to %n step %one iter_args(%a = %init, %b = %init)
      -> (tensor<8xf32>, tensor<8xf32>) {
    %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<8x16xf32>) outs(%a : tensor<8xf32>) {
    ^bb0(%in: f32, %acc: f32):
      %y = arith.addf %acc, %in : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    %max = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<8x16xf32>) outs(%b : tensor<8xf32>) {
    ^bb0(%in: f32, %acc: f32):
      %y = arith.maximumf %acc, %in : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    %mixed = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%b : tensor<8xf32>) outs(%sum : tensor<8xf32>) {
    ^bb0(%old: f32, %acc: f32):
      %y = arith.mulf %acc, %old : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    scf.yield %mixed, %max : tensor<8xf32>, tensor<8xf32>
  }
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}

// A whole tensor from outside that is a tile goes to scratch as well: who reads it does not know
// how its elements lie. What a product takes is packed by the product.
// CHECK-LABEL: func.func @whole
// CHECK: scf.forall
// CHECK: %[[W:.*]] = linalg.copy {{.*}}ins(%arg1 : tensor<64xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[W]] : tensor<64xf32>, tensor<64xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg2 : tensor<64xf32>, tensor<64xf32>)
func.func @whole(%x: tensor<?x64xf32>, %w: tensor<64xf32>, %v: tensor<64xf32>, %n: index) -> tensor<?xf32> {
  %empty = tensor.empty(%n) : tensor<?xf32>
  %out = scf.forall (%i) in (%n) shared_outs(%dst = %empty) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %x[%i, 0] [1, 64] [1, 1] : tensor<?x64xf32> to tensor<64xf32>
    %e = tensor.empty() : tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%t, %w : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%a: f32, %b: f32, %u: f32):
      %y = arith.mulf %a, %b : f32
      linalg.yield %y : f32
    } -> tensor<64xf32>
    %z = arith.constant 0.0 : f32
    %s = tensor.empty() : tensor<f32>
    %f = linalg.fill ins(%z : f32) outs(%s : tensor<f32>) -> tensor<f32>
    %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
        iterator_types = ["reduction"]} ins(%r, %v : tensor<64xf32>, tensor<64xf32>) outs(%f : tensor<f32>) {
    ^bb0(%a: f32, %b: f32, %u: f32):
      %y = arith.mulf %a, %b : f32
      %q = arith.addf %u, %y : f32
      linalg.yield %q : f32
    } -> tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %dst[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  }
  return %out : tensor<?xf32>
}

// RUN: neptune-opt %s --fuse-tiles | filecheck %s

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A softmax of rows that fit a tile. The sum makes the exponentials, too, and the quotient reads
// them: it computes none. Where the maximum is -inf, the program as written has NaN.
// CHECK-LABEL: func.func @softmax
// CHECK: arith.maximumf
// CHECK: %[[S:.*]]:2 = linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "reduction"]
// CHECK: %[[E:.*]] = math.exp
// CHECK: %[[A:.*]] = arith.addf %{{.*}}, %[[E]]
// CHECK: linalg.yield %[[A]], %[[E]] : f32, f32
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[S]]#0, %[[S]]#1 :
// CHECK: %[[P:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK-NEXT: arith.divf %[[P]]
// CHECK-NOT: math.exp
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %rows = tensor.empty() : tensor<4xf32>
  %tile = tensor.empty() : tensor<4x8xf32>
  %r = scf.forall (%p) in (1) shared_outs(%o = %tile) -> (tensor<4x8xf32>) {
    %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
    %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<4x8xf32>) outs(%m0 : tensor<4xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %1 = arith.maximumf %acc, %a : f32
      linalg.yield %1 : f32
    } -> tensor<4xf32>
    %s = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]}
        ins(%x, %m : tensor<4x8xf32>, tensor<4xf32>) outs(%s0 : tensor<4xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %none = arith.cmpf oeq, %b, %least : f32
      %guard = arith.select %none, %zero, %b : f32
      %1 = arith.subf %a, %guard : f32
      %2 = math.exp %1 : f32
      %3 = arith.addf %acc, %2 : f32
      linalg.yield %3 : f32
    } -> tensor<4xf32>
    %q = linalg.generic {indexing_maps = [#ij, #i, #i, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x, %m, %s : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
        outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
      %1 = arith.subf %a, %b : f32
      %2 = math.exp %1 : f32
      %3 = arith.divf %2, %c : f32
      linalg.yield %3 : f32
    } -> tensor<4x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %o[0, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<4x8xf32>
    }
  }
  return %r : tensor<4x8xf32>
}

// Distances from a number of the row, their sum and the sum of their squares: one loop, and no tile
// of distances.
// CHECK-LABEL: func.func @moments
// CHECK: %{{.*}}:2 = linalg.generic
// CHECK: %[[D:.*]] = arith.subf
// CHECK: arith.addf %{{.*}}, %[[D]]
// CHECK: %[[Q:.*]] = arith.mulf %[[D]], %[[D]]
// CHECK: arith.addf %{{.*}}, %[[Q]]
// CHECK-NOT: linalg.generic
func.func @moments(%x: tensor<4x8xf32>, %t: tensor<4xf32>, %s0: tensor<4xf32>, %q0: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %rows = tensor.empty() : tensor<4xf32>
  %tile = tensor.empty() : tensor<4x8xf32>
  %r:2 = scf.forall (%p) in (1) shared_outs(%o = %rows, %u = %rows) -> (tensor<4xf32>, tensor<4xf32>) {
    %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x, %t : tensor<4x8xf32>, tensor<4xf32>) outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %1 = arith.subf %a, %b : f32
      linalg.yield %1 : f32
    } -> tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
        ins(%d : tensor<4x8xf32>) outs(%s0 : tensor<4xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %1 = arith.addf %acc, %a : f32
      linalg.yield %1 : f32
    } -> tensor<4xf32>
    %q = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
        ins(%d : tensor<4x8xf32>) outs(%q0 : tensor<4xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %1 = arith.mulf %a, %a : f32
      %2 = arith.addf %acc, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
      tensor.parallel_insert_slice %q into %u[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
    }
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// A maximum of other numbers than those that it is taken off says nothing of -inf: both compute.
// CHECK-LABEL: func.func @another_maximum
// CHECK-COUNT-2: math.exp
func.func @another_maximum(%x: tensor<4x8xf32>, %m: tensor<4xf32>) -> tensor<4x8xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %rows = tensor.empty() : tensor<4xf32>
  %tile = tensor.empty() : tensor<4x8xf32>
  %r = scf.forall (%p) in (1) shared_outs(%o = %tile) -> (tensor<4x8xf32>) {
    %s0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
    %s = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]}
        ins(%x, %m : tensor<4x8xf32>, tensor<4xf32>) outs(%s0 : tensor<4xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %none = arith.cmpf oeq, %b, %least : f32
      %guard = arith.select %none, %zero, %b : f32
      %1 = arith.subf %a, %guard : f32
      %2 = math.exp %1 : f32
      %3 = arith.addf %acc, %2 : f32
      linalg.yield %3 : f32
    } -> tensor<4xf32>
    %q = linalg.generic {indexing_maps = [#ij, #i, #i, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x, %m, %s : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
        outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
      %1 = arith.subf %a, %b : f32
      %2 = math.exp %1 : f32
      %3 = arith.divf %2, %c : f32
      linalg.yield %3 : f32
    } -> tensor<4x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %q into %o[0, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<4x8xf32>
    }
  }
  return %r : tensor<4x8xf32>
}

// A sum of all and one along an axis are two loops: in one for both, that axis would be reduced, and
// the second has a result for each of its points.
// CHECK-LABEL: func.func @other_axes
// CHECK: iterator_types = ["reduction", "reduction"]
// CHECK: iterator_types = ["reduction", "parallel"]
#all = affine_map<(i, j) -> ()>
#j = affine_map<(i, j) -> (j)>
func.func @other_axes(%x: tensor<4x8xf32>) -> (tensor<f32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = tensor.empty() : tensor<f32>
  %row = tensor.empty() : tensor<8xf32>
  %r:2 = scf.forall (%p) in (1) shared_outs(%o = %one, %u = %row)
      -> (tensor<f32>, tensor<8xf32>) {
    %s0 = linalg.fill ins(%zero : f32) outs(%one : tensor<f32>) -> tensor<f32>
    %q0 = linalg.fill ins(%zero : f32) outs(%row : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.generic {indexing_maps = [#ij, #all], iterator_types = ["reduction", "reduction"]}
        ins(%x : tensor<4x8xf32>) outs(%s0 : tensor<f32>) {
    ^bb0(%a: f32, %acc: f32):
      %1 = arith.addf %acc, %a : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    %q = linalg.generic {indexing_maps = [#ij, #j], iterator_types = ["reduction", "parallel"]}
        ins(%x : tensor<4x8xf32>) outs(%q0 : tensor<8xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %1 = arith.addf %acc, %a : f32
      linalg.yield %1 : f32
    } -> tensor<8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[] [] [] : tensor<f32> into tensor<f32>
      tensor.parallel_insert_slice %q into %u[0] [8] [1] : tensor<8xf32> into tensor<8xf32>
    }
  }
  return %r#0, %r#1 : tensor<f32>, tensor<8xf32>
}

// The weights of a mask, and a gradient under the same mask: it reads what the weights hold, for
// where they hold nothing it is 0. Under another mask it computes its own.
// CHECK-LABEL: func.func @masked_weights
// CHECK: %[[P:.*]] = linalg.generic
// CHECK: math.exp
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[P]], %[[P]] :
// CHECK-NOT: math.exp
// CHECK: arith.mulf
// CHECK-LABEL: func.func @other_mask
// CHECK-COUNT-2: math.exp
func.func @masked_weights(%x: tensor<4x8xf32>, %n: index) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %tile = tensor.empty() : tensor<4x8xf32>
  %r = scf.forall (%p) in (1) shared_outs(%o = %tile) -> (tensor<4x8xf32>) {
    %w = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x8xf32>) outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %u: f32):
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %n : index
      %e = math.exp %a : f32
      %s = arith.select %c, %e, %zero : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    %g = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x, %w : tensor<4x8xf32>, tensor<4x8xf32>) outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %u: f32):
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %n : index
      %e = math.exp %a : f32
      %m = arith.mulf %e, %a : f32
      %d = arith.addf %m, %b : f32
      %s = arith.select %c, %d, %zero : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %g into %o[0, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<4x8xf32>
    }
  }
  return %r : tensor<4x8xf32>
}

func.func @other_mask(%x: tensor<4x8xf32>, %n: index) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %tile = tensor.empty() : tensor<4x8xf32>
  %r = scf.forall (%p) in (1) shared_outs(%o = %tile) -> (tensor<4x8xf32>) {
    %w = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x8xf32>) outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %u: f32):
      %j = linalg.index 1 : index
      %c = arith.cmpi slt, %j, %n : index
      %e = math.exp %a : f32
      %s = arith.select %c, %e, %zero : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    %g = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%x, %w : tensor<4x8xf32>, tensor<4x8xf32>) outs(%tile : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %u: f32):
      %j = linalg.index 1 : index
      %c = arith.cmpi sle, %j, %n : index
      %e = math.exp %a : f32
      %m = arith.mulf %e, %b : f32
      %s = arith.select %c, %m, %zero : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %g into %o[0, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<4x8xf32>
    }
  }
  return %r : tensor<4x8xf32>
}

// RUN: neptune-opt %s --turn-tiles=vector-bits=512 | filecheck %s
// RUN: neptune-opt %s --turn-tiles=stays=rows | filecheck %s --check-prefix=ROWS

#rows = affine_map<(i, j, k) -> (i, k)>
#columns = affine_map<(i, j, k) -> (j, k)>
#both = affine_map<(i, j, k) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// %b comes with the loop, %a stays: scores are [j, i], their mask and what adds them up follow.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[P:.*]] = affine_map<(d0, d1, d2) -> (d1, d0)>
// CHECK-DAG: #[[ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @turned
// CHECK: scf.for
// CHECK: %[[S:.*]] = linalg.generic {indexing_maps = [#[[B]], #[[A]], #[[C]]], {{.*}} outs(%{{.*}} : tensor<48x32xf32>)
// CHECK: %[[E:.*]] = linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]], {{.*}} ins(%[[S]],
// CHECK: linalg.index 0
// CHECK: -> tensor<48x32xf32>
// CHECK: linalg.generic {indexing_maps = [#[[P]], {{.*}} ins(%[[E]],
// CHECK: -> tensor<32x64xf32>
func.func @turned(%a: tensor<32x64xf32>, %k: tensor<?x64xf32>, %m: tensor<32xf32>, %n: index) -> tensor<32x64xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x64xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<32x64xf32>) -> tensor<32x64xf32>
  %out = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<32x64xf32>) {
    %b = tensor.extract_slice %k[%at, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
    %se = tensor.empty() : tensor<32x48xf32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<32x48xf32>) -> tensor<32x48xf32>
    %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<32x64xf32>, tensor<48x64xf32>) outs(%s0 : tensor<32x48xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<32x48xf32>
    %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%s, %m : tensor<32x48xf32>, tensor<32xf32>) outs(%se : tensor<32x48xf32>) {
    ^bb0(%x: f32, %r: f32, %u: f32):
      %j = linalg.index 1 : index
      %live = arith.cmpi slt, %j, %n : index
      %d = arith.subf %x, %r : f32
      %w = arith.select %live, %d, %f0 : f32
      linalg.yield %w : f32
    } -> tensor<32x48xf32>
    %o = linalg.generic {indexing_maps = [#both, affine_map<(i, j, e) -> (j, e)>, affine_map<(i, j, e) -> (i, e)>],
        iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%p, %b : tensor<32x48xf32>, tensor<48x64xf32>) outs(%acc : tensor<32x64xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<32x64xf32>
    scf.yield %o : tensor<32x64xf32>
  }
  return %out : tensor<32x64xf32>
}

// A maximum of each row reads the scores: they stay, and so they do where rows fill no vector.
// CHECK-LABEL: func.func @stays
// CHECK-NOT: tensor<48x32xf32>
// CHECK: return
func.func @stays(%a: tensor<32x64xf32>, %k: tensor<?x64xf32>, %n: index) -> tensor<32xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %out = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<32xf32>) {
    %b = tensor.extract_slice %k[%at, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
    %se = tensor.empty() : tensor<32x48xf32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<32x48xf32>) -> tensor<32x48xf32>
    %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<32x64xf32>, tensor<48x64xf32>) outs(%s0 : tensor<32x48xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<32x48xf32>
    %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<32x48xf32>) outs(%acc : tensor<32xf32>) {
    ^bb0(%x: f32, %u: f32):
      %w = arith.maximumf %x, %u : f32
      linalg.yield %w : f32
    } -> tensor<32xf32>
    scf.yield %m : tensor<32xf32>
  }
  return %out : tensor<32xf32>
}

// The factor that stays has the columns: for vectors that is right, for warp groups it has the rows, and
// what sums over the stream then has its left factor along the sum.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: tensor<32x48xf32>
// CHECK: return
// ROWS-LABEL: func.func @turned
// ROWS-NOT: tensor<48x32xf32>
// ROWS-LABEL: func.func @columns
// ROWS: linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<32x64xf32>, tensor<48x64xf32>) outs(%{{.*}} : tensor<32x48xf32>)
// ROWS: linalg.generic {indexing_maps = [#map{{[0-9]*}}, #map{{[0-9]*}}, #map{{[0-9]*}}], iterator_types = ["reduction", "parallel", "parallel"]} ins(%{{.*}} : tensor<32x48xf32>, tensor<48x64xf32>)
func.func @columns(%a: tensor<32x64xf32>, %q: tensor<?x64xf32>, %n: index) -> tensor<32x64xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x64xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<32x64xf32>) -> tensor<32x64xf32>
  %out = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<32x64xf32>) {
    %b = tensor.extract_slice %q[%at, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
    %se = tensor.empty() : tensor<48x32xf32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<48x32xf32>) -> tensor<48x32xf32>
    %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%b, %a : tensor<48x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<48x32xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<48x32xf32>
    %o = linalg.generic {indexing_maps = [affine_map<(i, j, e) -> (i, j)>, affine_map<(i, j, e) -> (i, e)>,
        affine_map<(i, j, e) -> (j, e)>], iterator_types = ["reduction", "parallel", "parallel"]}
        ins(%s, %b : tensor<48x32xf32>, tensor<48x64xf32>) outs(%acc : tensor<32x64xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<32x64xf32>
    scf.yield %o : tensor<32x64xf32>
  }
  return %out : tensor<32x64xf32>
}

// A sum over what comes reads the scores as well: in registers it becomes a sum along their rows. (A sum
// over what stays would not: the scores stay as they are.)
// ROWS-LABEL: func.func @summed
// ROWS: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<32x64xf32>, tensor<48x64xf32>) outs(%{{.*}} : tensor<32x48xf32>)
// ROWS: linalg.generic {indexing_maps = [#map{{[0-9]*}}, #map{{[0-9]*}}], iterator_types = ["parallel", "reduction"]} ins(%[[S]] : tensor<32x48xf32>)
// ROWS: linalg.index 1
// ROWS-LABEL: func.func @across
// ROWS-NOT: tensor<32x48xf32>
// ROWS: return
func.func @summed(%a: tensor<32x64xf32>, %q: tensor<?x64xf32>, %n: index) -> tensor<32xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %out = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<32xf32>) {
    %b = tensor.extract_slice %q[%at, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
    %se = tensor.empty() : tensor<48x32xf32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<48x32xf32>) -> tensor<48x32xf32>
    %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%b, %a : tensor<48x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<48x32xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<48x32xf32>
    %o = linalg.generic {indexing_maps = [#ij, affine_map<(i, j) -> (j)>],
        iterator_types = ["reduction", "parallel"]}
        ins(%s : tensor<48x32xf32>) outs(%acc : tensor<32xf32>) {
    ^bb0(%x: f32, %u: f32):
      %i = linalg.index 0 : index
      %live = arith.cmpi slt, %i, %n : index
      %w = arith.select %live, %x, %f0 : f32
      %sum = arith.addf %u, %w : f32
      linalg.yield %sum : f32
    } -> tensor<32xf32>
    scf.yield %o : tensor<32xf32>
  }
  return %out : tensor<32xf32>
}
func.func @across(%a: tensor<32x64xf32>, %q: tensor<?x64xf32>, %n: index) -> tensor<48xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<48xf32>) -> tensor<48xf32>
  %out = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<48xf32>) {
    %b = tensor.extract_slice %q[%at, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
    %se = tensor.empty() : tensor<48x32xf32>
    %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<48x32xf32>) -> tensor<48x32xf32>
    %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%b, %a : tensor<48x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<48x32xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %xy = arith.mulf %x, %y : f32
      %sum = arith.addf %u, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<48x32xf32>
    %o = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<48x32xf32>) outs(%acc : tensor<48xf32>) {
    ^bb0(%x: f32, %u: f32):
      %sum = arith.addf %u, %x : f32
      linalg.yield %sum : f32
    } -> tensor<48xf32>
    scf.yield %o : tensor<48xf32>
  }
  return %out : tensor<48xf32>
}

// What is left over of a stream, behind its loop, turns as the loop does.
// ROWS-LABEL: func.func @behind
// ROWS: scf.for
// ROWS: linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<32x64xf32>, tensor<48x64xf32>) outs(%{{.*}} : tensor<32x48xf32>)
// ROWS: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} ins(%{{.*}} : tensor<32x48xf32>, tensor<48x64xf32>)
func.func @behind(%a: tensor<32x64xf32>, %q: tensor<?x64xf32>, %n: index) -> tensor<32x64xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 48 : index
  %f0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x64xf32>
  %init = linalg.fill ins(%f0 : f32) outs(%e : tensor<32x64xf32>) -> tensor<32x64xf32>
  %most = scf.for %at = %zero to %n step %step iter_args(%acc = %init) -> (tensor<32x64xf32>) {
    scf.yield %acc : tensor<32x64xf32>
  }
  %b = tensor.extract_slice %q[%n, 0] [48, 64] [1, 1] : tensor<?x64xf32> to tensor<48x64xf32>
  %se = tensor.empty() : tensor<48x32xf32>
  %s0 = linalg.fill ins(%f0 : f32) outs(%se : tensor<48x32xf32>) -> tensor<48x32xf32>
  %s = linalg.generic {indexing_maps = [#rows, #columns, #both],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%b, %a : tensor<48x64xf32>, tensor<32x64xf32>) outs(%s0 : tensor<48x32xf32>) {
  ^bb0(%x: f32, %y: f32, %u: f32):
    %xy = arith.mulf %x, %y : f32
    %sum = arith.addf %u, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<48x32xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i, j, e) -> (i, j)>, affine_map<(i, j, e) -> (i, e)>,
      affine_map<(i, j, e) -> (j, e)>], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%s, %b : tensor<48x32xf32>, tensor<48x64xf32>) outs(%most : tensor<32x64xf32>) {
  ^bb0(%x: f32, %y: f32, %u: f32):
    %xy = arith.mulf %x, %y : f32
    %sum = arith.addf %u, %xy : f32
    linalg.yield %sum : f32
  } -> tensor<32x64xf32>
  return %o : tensor<32x64xf32>
}

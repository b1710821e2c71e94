// RUN: neptune-opt %s --merge-programs | filecheck %s

// The mean of each row, and what is computed with it, are one kernel: the tile that was made stands
// where the slice did.
// CHECK-LABEL: func.func @same_rows(
// CHECK: scf.forall (%[[I:.*]]) in
// CHECK-NOT: scf.forall
// CHECK: tensor.extract_slice %arg0[%[[I]], 0] [1, 8]
// CHECK: %[[SUM:.*]] = linalg.generic
// CHECK-NOT: tensor.extract_slice %{{.*}}[%[[I]]] [1]
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[SUM]] : tensor<8xf32>, tensor<f32>)
// CHECK: tensor.parallel_insert_slice
// CHECK-NOT: tensor.parallel_insert_slice

// Tiles of rows that end before they do: what is padded is the tile.
// CHECK-LABEL: func.func @padded_rows(
// CHECK: scf.forall (%[[I:.*]]) in
// CHECK-NOT: scf.forall
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<4xf32>)

// A program that takes what another one made: two kernels.
// CHECK-LABEL: func.func @other_rows(
// CHECK-COUNT-2: scf.forall

// A result that something behind takes as well is one of the kernel.
// CHECK-LABEL: func.func @wanted(
// CHECK: %[[BOTH:.*]]:2 = scf.forall
// CHECK-NOT: scf.forall (
// CHECK-COUNT-2: tensor.parallel_insert_slice
// CHECK: return {{.*}}%[[BOTH]]#1
// CHECK-LABEL: func.func @other_grid(
// CHECK-COUNT-2: scf.forall
#x = affine_map<(j) -> (j)>
#row = affine_map<(j) -> ()>
#id = affine_map<(i) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#four = affine_map<(i) -> (i * 4)>
#rest = affine_map<(i)[n] -> (n - i * 4, 4)>
#tiles = affine_map<()[n] -> (n ceildiv 4)>
#missing = affine_map<(n) -> (4 - n)>
#back = affine_map<(i)[n] -> (n - i - 1)>

func.func @same_rows(%x: tensor<?x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>) -> tensor<f32>
  %sums = tensor.empty(%n) : tensor<?xf32>
  %all = tensor.empty(%n) : tensor<?x8xf32>
  %first = scf.forall (%i) in (%n) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %x[%i, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<8xf32>
    %s = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["reduction"]}
        ins(%t : tensor<8xf32>) outs(%start : tensor<f32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      linalg.yield %c : f32
    } -> tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "first"}
  %second = scf.forall (%i) in (%n) shared_outs(%o = %all) -> (tensor<?x8xf32>) {
    %t = tensor.extract_slice %x[%i, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<8xf32>
    %s = tensor.extract_slice %first[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    %e = tensor.empty() : tensor<8xf32>
    %d = linalg.generic {indexing_maps = [#x, #row, #x], iterator_types = ["parallel"]}
        ins(%t, %s : tensor<8xf32>, tensor<f32>) outs(%e : tensor<8xf32>) {
    ^bb0(%a: f32, %b: f32, %r: f32):
      %c = arith.subf %a, %b : f32
      linalg.yield %c : f32
    } -> tensor<8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %d into %o[%i, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<?x8xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "second"}
  return %second : tensor<?x8xf32>
}

func.func @padded_rows(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %sums = tensor.empty(%n) : tensor<?xf32>
  %count = affine.apply #tiles()[%n]
  %first = scf.forall (%i) in (%count) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %at = affine.apply #four(%i)
    %left = affine.min #rest(%i)[%n]
    %e = tensor.empty() : tensor<4xf32>
    %s = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%s : tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%a: f32, %r: f32):
      %c = math.exp %a : f32
      linalg.yield %c : f32
    } -> tensor<4xf32>
    %part = tensor.extract_slice %t[0] [%left] [1] : tensor<4xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %o[%at] [%left] [1] : tensor<?xf32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "first"}
  %second = scf.forall (%i) in (%count) shared_outs(%o = %sums) -> (tensor<?xf32>) {
    %at = affine.apply #four(%i)
    %left = affine.min #rest(%i)[%n]
    %taken = tensor.extract_slice %first[%at] [%left] [1] : tensor<?xf32> to tensor<?xf32>
    %more = affine.apply #missing(%left)
    %whole = tensor.pad %taken low[0] high[%more] {
    ^bb0(%k: index):
      tensor.yield %zero : f32
    } : tensor<?xf32> to tensor<4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%whole : tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%a: f32, %r: f32):
      %c = arith.negf %a : f32
      linalg.yield %c : f32
    } -> tensor<4xf32>
    %part = tensor.extract_slice %d[0] [%left] [1] : tensor<4xf32> to tensor<?xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %o[%at] [%left] [1] : tensor<?xf32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "second"}
  return %second : tensor<?xf32>
}

func.func @other_rows(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %made = tensor.empty(%n) : tensor<?xf32>
  %first = scf.forall (%i) in (%n) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %x[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "first"}
  %second = scf.forall (%i) in (%n) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %there = affine.apply #back(%i)[%n]
    %t = tensor.extract_slice %first[%there] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "second"}
  return %second : tensor<?xf32>
}

func.func @wanted(%x: tensor<?xf32>, %n: index) -> (tensor<?xf32>, tensor<?xf32>) {
  %made = tensor.empty(%n) : tensor<?xf32>
  %first = scf.forall (%i) in (%n) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %x[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "first"}
  %second = scf.forall (%i) in (%n) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %first[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "second"}
  return %first, %second : tensor<?xf32>, tensor<?xf32>
}

func.func @other_grid(%x: tensor<?xf32>, %n: index, %m: index) -> tensor<?xf32> {
  %made = tensor.empty(%n) : tensor<?xf32>
  %first = scf.forall (%i) in (%n) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %x[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "first"}
  %second = scf.forall (%i) in (%m) shared_outs(%o = %made) -> (tensor<?xf32>) {
    %t = tensor.extract_slice %first[%i] [1] [1] : tensor<?xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[%i] [1] [1] : tensor<f32> into tensor<?xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "second"}
  return %second : tensor<?xf32>
}

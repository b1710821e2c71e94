// The threads that share a row of x each carry the sum of their own part, scaled on the way; a sum
// that is read within its loop, or that starts at a value of its own, is joined in each iteration.
// RUN: neptune-opt %s --assign-layouts="target=sm_80 warps=4" --defer-joins | filecheck %s

// CHECK-LABEL: func.func @sums
// CHECK: neptune.partial
// CHECK: "neptune.join_lanes"({{.*}}) {distances = array<i64: {{.*}}>, warps = array<i64>}
// A row that all warps share, scaled by an exponential that is computed beside the product.
// CHECK-LABEL: func.func @one_row
// CHECK: neptune.partial
// CHECK: "neptune.join_lanes"({{.*}}) {distances = array<i64: 1, 2, 4, 8, 16>, warps = array<i64: 1, 4>}
// CHECK-LABEL: func.func @read_again
// CHECK-NOT: neptune.partial
// CHECK-LABEL: func.func @given_start
// CHECK-NOT: neptune.partial

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#all = affine_map<(i) -> ()>
#point = affine_map<() -> ()>

func.func @sums(%x: tensor<64x1024xf32>, %c: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<64xf32>) {
    %o = tensor.empty() : tensor<64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64xf32>) -> tensor<64xf32>
    %factor = tensor.extract_slice %c[0] [64] [1] : tensor<64xf32> to tensor<64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [64, 64] [1, 1] : tensor<64x1024xf32> to tensor<64x64xf32>
      %scaled = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
          ins(%acc, %factor : tensor<64xf32>, tensor<64xf32>) outs(%o : tensor<64xf32>) {
      ^bb0(%a: f32, %f: f32, %w: f32):
        %m = arith.mulf %a, %f : f32
        linalg.yield %m : f32
      } -> tensor<64xf32>
      %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%xt : tensor<64x64xf32>) outs(%scaled : tensor<64xf32>) {
      ^bb0(%a: f32, %w: f32):
        %t = arith.addf %w, %a : f32
        linalg.yield %t : f32
      } -> tensor<64xf32>
      scf.yield %next : tensor<64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  }
  return %out : tensor<64xf32>
}

func.func @one_row(%x: tensor<4096xf32>, %c: tensor<f32>) -> tensor<1xf32> {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<1xf32>) {
    %o = tensor.empty() : tensor<f32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<f32>) -> tensor<f32>
    %sum = scf.for %j = %c0 to %c4096 step %c1024 iter_args(%acc = %start) -> (tensor<f32>) {
      %xt = tensor.extract_slice %x[%j] [1024] [1] : tensor<4096xf32> to tensor<1024xf32>
      %scaled = linalg.generic {indexing_maps = [#point, #point, #point], iterator_types = []}
          ins(%acc, %c : tensor<f32>, tensor<f32>) outs(%o : tensor<f32>) {
      ^bb0(%a: f32, %f: f32, %w: f32):
        %g = math.exp %f : f32
        %m = arith.mulf %a, %g : f32
        linalg.yield %m : f32
      } -> tensor<f32>
      %next = linalg.generic {indexing_maps = [#one, #all], iterator_types = ["reduction"]}
          ins(%xt : tensor<1024xf32>) outs(%scaled : tensor<f32>) {
      ^bb0(%a: f32, %w: f32):
        %t = arith.addf %w, %a : f32
        linalg.yield %t : f32
      } -> tensor<f32>
      scf.yield %next : tensor<f32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0] [1] [1] : tensor<f32> into tensor<1xf32>
    }
  }
  return %out : tensor<1xf32>
}

func.func @read_again(%x: tensor<64x1024xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %out:2 = scf.forall (%b) in (1) shared_outs(%dst = %e, %dst2 = %e) -> (tensor<64xf32>, tensor<64xf32>) {
    %o = tensor.empty() : tensor<64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64xf32>) -> tensor<64xf32>
    %sum:2 = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start, %most = %start) -> (tensor<64xf32>, tensor<64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [64, 64] [1, 1] : tensor<64x1024xf32> to tensor<64x64xf32>
      %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%xt : tensor<64x64xf32>) outs(%acc : tensor<64xf32>) {
      ^bb0(%a: f32, %w: f32):
        %t = arith.addf %w, %a : f32
        linalg.yield %t : f32
      } -> tensor<64xf32>
      %top = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
          ins(%next : tensor<64xf32>) outs(%most : tensor<64xf32>) {
      ^bb0(%a: f32, %w: f32):
        %t = arith.maximumf %w, %a : f32
        linalg.yield %t : f32
      } -> tensor<64xf32>
      scf.yield %next, %top : tensor<64xf32>, tensor<64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum#0 into %dst[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
      tensor.parallel_insert_slice %sum#1 into %dst2[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  }
  return %out#0, %out#1 : tensor<64xf32>, tensor<64xf32>
}

func.func @given_start(%x: tensor<64x1024xf32>, %c: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %e = tensor.empty() : tensor<64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<64xf32>) {
    %start = tensor.extract_slice %c[0] [64] [1] : tensor<64xf32> to tensor<64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [64, 64] [1, 1] : tensor<64x1024xf32> to tensor<64x64xf32>
      %next = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%xt : tensor<64x64xf32>) outs(%acc : tensor<64xf32>) {
      ^bb0(%a: f32, %w: f32):
        %t = arith.addf %w, %a : f32
        linalg.yield %t : f32
      } -> tensor<64xf32>
      scf.yield %next : tensor<64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  }
  return %out : tensor<64xf32>
}

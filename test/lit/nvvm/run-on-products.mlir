// A loop that does nothing but multiply is marked: what it waits for is the product before.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --run-on-products | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --run-on-products --schedule-loops 2>&1 | filecheck %s --check-prefix=STAYS
// One product is left to run in the loop, and waited for behind it; tiles are given back late, and
// the last ones behind the loop. The first iteration has none to give back.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --run-on-products --distribute-tiles=entry=product | filecheck %s --check-prefix=CODE

// CHECK-LABEL: func.func @product
// CHECK: "neptune.mma_wait"{{.*}} {pending = 0
// CHECK: } {{{.*}}neptune.runs_on
// The result is read in the loop:
// CHECK-LABEL: func.func @read
// CHECK-NOT: neptune.runs_on

// STAYS-NOT: error
// STAYS: remark: a loop is not pipelined
// STAYS-NOT: remark
// STAYS-LABEL: func.func @product
// STAYS-NOT: neptune.stage =
// STAYS: neptune.runs_on
// STAYS-LABEL: func.func @read

// CODE-LABEL: gpu.func @product
// CODE: scf.for
// CODE: arith.cmpi slt
// CODE: wgmma.mma_async
// CODE: wgmma.wait_group.sync.aligned 1
// CODE: arith.select
// CODE: mbarrier.arrive.shared
// CODE: scf.yield
// CODE: wgmma.wait_group.sync.aligned 0
// CODE: mbarrier.arrive.shared
// CODE: mbarrier.arrive.shared

#mk = affine_map<(i, j, k) -> (i, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#same = affine_map<(i, j) -> (i, j)>

func.func @product(%x: tensor<128x1024xf16>, %w: tensor<1024x64xf16>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x64xf32>) {
    %o = tensor.empty() : tensor<128x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<128x64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [128, 64] [1, 1] : tensor<128x1024xf16> to tensor<128x64xf16>
      %wt = tensor.extract_slice %w[%j, 0] [64, 64] [1, 1] : tensor<1024x64xf16> to tensor<64x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<128x64xf16>, tensor<64x64xf16>) outs(%acc : tensor<128x64xf32>) {
      ^bb0(%p: f16, %q: f16, %w0: f32):
        %pf = arith.extf %p : f16 to f32
        %qf = arith.extf %q : f16 to f32
        %m = arith.mulf %pf, %qf : f32
        %t = arith.addf %w0, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      scf.yield %next : tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<128x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x64xf32>
}

func.func @read(%x: tensor<128x1024xf16>, %w: tensor<1024x64xf16>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<128x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x64xf32>) {
    %o = tensor.empty() : tensor<128x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<128x64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [128, 64] [1, 1] : tensor<128x1024xf16> to tensor<128x64xf16>
      %wt = tensor.extract_slice %w[%j, 0] [64, 64] [1, 1] : tensor<1024x64xf16> to tensor<64x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<128x64xf16>, tensor<64x64xf16>) outs(%acc : tensor<128x64xf32>) {
      ^bb0(%p: f16, %q: f16, %w0: f32):
        %pf = arith.extf %p : f16 to f32
        %qf = arith.extf %q : f16 to f32
        %m = arith.mulf %pf, %qf : f32
        %t = arith.addf %w0, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      %half = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel", "parallel"]}
          outs(%next : tensor<128x64xf32>) {
      ^bb0(%v: f32):
        %h = arith.mulf %v, %scale : f32
        linalg.yield %h : f32
      } -> tensor<128x64xf32>
      scf.yield %half : tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<128x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x64xf32>
}

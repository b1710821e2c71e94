// A matmul that a warp group does becomes a start and a wait; the tile stays until the wait.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls | filecheck %s
// A portable program keeps its contraction: its matmuls are synchronous.
// RUN: neptune-opt %s --assign-layouts="target=sm_80 warps=8" --split-matmuls | filecheck %s --check-prefix=PORTABLE
// Two ops side by side are one matmul and one wait.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --distribute-tiles | filecheck %s --check-prefix=CODE

// CHECK: scf.for {{.*}}iter_args(%[[ACC:.*]] = %{{.*}})
// CHECK-DAG: %[[A:.*]] = "neptune.aref_get"
// CHECK-DAG: %[[B:.*]] = "neptune.aref_get"
// CHECK-NOT: linalg.generic
// CHECK: %[[RUNS:.*]] = "neptune.mma_start"(%[[A]], %[[B]], %[[ACC]])
// CHECK-SAME: indexing_maps
// CHECK-SAME: -> !neptune.pending<tensor<128x64xf32>>
// CHECK-NEXT: %[[NEXT:.*]] = "neptune.mma_wait"(%[[RUNS]]) {pending = 0
// CHECK-NEXT: "neptune.aref_release"
// CHECK-NEXT: "neptune.aref_release"
// CHECK: scf.yield %[[NEXT]]

// PORTABLE-NOT: neptune.mma_start
// PORTABLE: linalg.generic{{.*}}neptune.via = "mma"

// CODE: wgmma.mma_async
// CODE: wgmma.wait_group.sync.aligned 0
// CODE-NOT: wgmma.mma_async

#mk = affine_map<(i, j, k) -> (i, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>

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

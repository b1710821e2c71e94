// exp(A K^T) K: both matmuls read a tile of one ring. Each has a get of its own, and the second may run
// an iteration late; in the code the ring's slot is free once both have released it.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops --pipeline-loops 2>/dev/null | filecheck %s --check-prefix=PIPELINED
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops --pipeline-loops --distribute-tiles=entry=shared 2>/dev/null | filecheck %s --check-prefix=CODE

// CHECK: scf.for {{.*}}iter_args
// CHECK: %[[K:.*]] = "neptune.aref_get"(%[[RING:.*]]) {{.*}}neptune.stage = 0
// CHECK: "neptune.mma_start"({{.*}}, %[[K]],
// CHECK: %[[L:.*]] = "neptune.aref_get"(%[[RING]]) {{.*}}neptune.reader = 1 : i64, neptune.stage = 1
// CHECK: "neptune.mma_start"({{.*}}, %[[L]],
// CHECK-DAG: "neptune.aref_release"(%[[L]]) {{.*}}neptune.stage = 1
// CHECK-DAG: "neptune.aref_release"(%[[K]]) {{.*}}neptune.stage = 0

// the first tile is got for the first matmul, the last one is left to the second
// PIPELINED: scf.if
// PIPELINED: "neptune.aref_get"(%[[RING:.*]]) : (
// PIPELINED-NOT: neptune.reader
// PIPELINED: scf.for
// PIPELINED-DAG: "neptune.aref_get"(%[[RING]]) : (
// PIPELINED-DAG: "neptune.aref_get"(%[[RING]]) {neptune.reader = 1 : i64}
// PIPELINED: scf.yield
// PIPELINED: scf.if
// PIPELINED: "neptune.aref_get"(%[[RING]]) {neptune.reader = 1 : i64}

// Eight warps arrive at the barrier of a free slot for the tile that is loaded once: where the loop
// has no iteration, no matmul keeps the warps of a group together. Two groups arrive at those of the
// ring, twice.
// CODE-NOT: mbarrier.init.shared::cta.b64 [$0], 2;
// CODE-DAG: mbarrier.init.shared::cta.b64 [$0], 8;
// CODE-DAG: mbarrier.init.shared::cta.b64 [$0], 4;
// CODE-NOT: mbarrier.init.shared::cta.b64 [$0], 2;

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @shared(%a: tensor<128x64xf16>, %k: tensor<1024x64xf16>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x64xf32>) {
    %at = tensor.extract_slice %a[0, 0] [128, 64] [1, 1] : tensor<128x64xf16> to tensor<128x64xf16>
    %o = tensor.empty() : tensor<128x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c128 iter_args(%acc = %start) -> (tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %se = tensor.empty() : tensor<128x128xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<128x128xf32>) -> tensor<128x128xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<128x64xf16>, tensor<128x64xf16>) outs(%z : tensor<128x128xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x128xf32>
      %pe = tensor.empty() : tensor<128x128xf16>
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<128x128xf32>) outs(%pe : tensor<128x128xf16>) {
      ^bb0(%x: f32, %w: f16):
        %r = math.exp %x : f32
        %h = arith.truncf %r : f32 to f16
        linalg.yield %h : f16
      } -> tensor<128x128xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %kt : tensor<128x128xf16>, tensor<128x64xf16>) outs(%acc : tensor<128x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
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

// A loop in two stages becomes a prologue, a steady state and an epilogue.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops --pipeline-loops 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops --pipeline-loops --distribute-tiles=entry=fits 2>/dev/null | filecheck %s --check-prefix=CODE
// RUN: neptune-opt %s --set-choices=beside=4 --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops --pipeline-loops --distribute-tiles=entry=fits 2>/dev/null | filecheck %s --check-prefix=BESIDE

// the prologue: stage 0 of the first iteration, if there is one
// CHECK: %[[ANY:.*]] = arith.cmpi slt
// CHECK: scf.if %[[ANY]] -> (tensor<128x64xf32>, tensor<128x128xf32>)
// CHECK: %[[K0:.*]] = "neptune.aref_get"(%[[KEYS:.*]])
// CHECK: %[[S0:.*]] = "neptune.mma_start"({{.*}}, %[[K0]],
// CHECK: %[[W0:.*]] = "neptune.mma_wait"(%[[S0]]) {pending = 0
// CHECK: "neptune.aref_release"(%[[K0]])
// CHECK: scf.yield {{.*}}, %[[W0]]

// the steady state: S of this iteration beside exp and the second matmul of the one before
// CHECK: %[[R:.*]]:2 = scf.for {{.*}}iter_args(%[[ACC:.*]] = {{.*}}, %[[OLD:.*]] = {{.*}})
// CHECK: %[[K:.*]] = "neptune.aref_get"(%[[KEYS]])
// CHECK: %[[S:.*]] = "neptune.mma_start"({{.*}}, %[[K]],
// CHECK: %[[P:.*]] = linalg.generic{{.*}}ins(%[[OLD]] :
// CHECK: %[[V:.*]] = "neptune.aref_get"(%[[VALUES:.*]])
// CHECK: %[[O:.*]] = "neptune.mma_start"(%[[P]], %[[V]], %[[ACC]])
// CHECK: %[[NEW:.*]] = "neptune.mma_wait"(%[[S]]) {pending = 1
// CHECK: "neptune.aref_release"(%[[K]])
// CHECK: %[[SUM:.*]] = "neptune.mma_wait"(%[[O]]) {pending = 0
// CHECK: "neptune.aref_release"(%[[V]])
// CHECK: scf.yield %[[SUM]], %[[NEW]]

// the epilogue: what is left of the last iteration
// CHECK: scf.if {{.*}} -> (tensor<128x64xf32>)
// CHECK: linalg.generic{{.*}}ins(%[[R]]#1 :
// CHECK: "neptune.aref_get"(%[[VALUES]])
// CHECK: "neptune.mma_start"({{.*}}, %[[R]]#0)
// CHECK: "neptune.mma_wait"
// CHECK: "neptune.aref_release"
// CHECK-NOT: neptune.stage =

// By the choice `beside` half of the instructions of S stand at its start, the others between
// exponentials: two groups of them, so one that may run on is one more to count.
// BESIDE: gpu.func @fits
// BESIDE: scf.for
// BESIDE-COUNT-2: wgmma.mma_async
// BESIDE: wgmma.commit_group
// BESIDE-COUNT-32: ex2
// BESIDE: wgmma.mma_async
// BESIDE-COUNT-32: ex2
// BESIDE: wgmma.mma_async
// BESIDE: wgmma.commit_group
// BESIDE-COUNT-8: wgmma.mma_async
// BESIDE: wgmma.commit_group
// BESIDE: wgmma.wait_group.sync.aligned 1
// BESIDE: wgmma.wait_group.sync.aligned 0

// CODE: gpu.func @fits
// CODE: scf.for
// CODE: wgmma.mma_async
// CODE: ex2
// CODE: wgmma.mma_async
// CODE: wgmma.wait_group.sync.aligned 1
// CODE: wgmma.wait_group.sync.aligned 0

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @fits(%a: tensor<128x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<128x64xf32> {
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
      %vt = tensor.extract_slice %v[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %vt : tensor<128x128xf16>, tensor<128x64xf16>) outs(%acc : tensor<128x64xf32>) {
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

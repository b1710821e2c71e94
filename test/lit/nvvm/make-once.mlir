// exp(A K^T) V with results of 512 columns, two instructions' widths: two groups share 64 rows. The
// first one computes all 64 columns of a tile of scores, for both, and each 256 of the results. What
// is made of the scores is copied to shared memory, as the panel that instructions read.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a" 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a" --partition-warps --split-matmuls --schedule-loops --pipeline-loops --make-once 2>/dev/null | filecheck %s --check-prefix=ONCE
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a" --partition-warps --split-matmuls --make-once --distribute-tiles=entry=wide 2>/dev/null | filecheck %s --check-prefix=CODE

// CHECK-LABEL: func.func @wide
// CHECK: neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:4*16 -:2]", neptune.via = "mma"
// CHECK: linalg.copy {neptune.handed, neptune.layout = "shared[2*128 7>>0]"}
// CHECK: neptune.layout = "reg[1:2*1 0:2*8 1:32*8] lane[1:4*2 0:8*1] warp[0:4*16 1:2*256]", neptune.via = "mma"
// CHECK: neptune.consumers = 2 : i64

// ONCE: "neptune.producer"
// ONCE: %[[A:.*]] = "neptune.aref_get"{{.*}}neptune.once
// ONCE: scf.for
// ONCE: %[[K:.*]] = "neptune.aref_get"{{.*}}neptune.once
// ONCE: %[[S:.*]] = "neptune.mma_start"(%[[A]], %[[K]], {{.*}}neptune.once
// ONCE: "neptune.mma_wait"(%[[S]]) {neptune.once, pending = 0
// ONCE: linalg.generic {{.*}}neptune.once
// ONCE: %[[V:.*]] = "neptune.aref_get"(%{{[^)]*}}) :
// ONCE: %[[P:.*]] = linalg.copy {neptune.handed
// ONCE: %[[SUM:.*]] = "neptune.mma_start"(%[[P]], %[[V]]
// ONCE: "neptune.mma_wait"(%[[SUM]]) {pending = 0
// ONCE: "neptune.aref_release"(%[[V]]) :
// ONCE: scf.yield

// the first group: scores, its columns of the results; then it stores its factor and says so
// CODE: m64n64k16
// CODE: m64n256k16
// CODE: bar.sync $0, 256
// CODE: fence.proxy.async.shared::cta
// CODE: bar.arrive $0, 256
// the other one: it says that the place is free, and waits for the factor
// CODE: bar.arrive $0, 256
// CODE-NOT: m64n64k16
// CODE: bar.sync $0, 256
// CODE: m64n256k16
// CODE: bar.arrive $0, 256

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @wide(%a: tensor<64x512xf16>, %k: tensor<1024x512xf16>, %v: tensor<1024x512xf16>) -> tensor<64x512xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x512xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<64x512xf32>) {
    %at = tensor.extract_slice %a[0, 0] [64, 512] [1, 1] : tensor<64x512xf16> to tensor<64x512xf16>
    %o = tensor.empty() : tensor<64x512xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64x512xf32>) -> tensor<64x512xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<64x512xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [64, 512] [1, 1] : tensor<1024x512xf16> to tensor<64x512xf16>
      %se = tensor.empty() : tensor<64x64xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<64x64xf32>) -> tensor<64x64xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<64x512xf16>, tensor<64x512xf16>) outs(%z : tensor<64x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x64xf32>
      %pe = tensor.empty() : tensor<64x64xf16>
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<64x64xf32>) outs(%pe : tensor<64x64xf16>) {
      ^bb0(%x: f32, %w: f16):
        %r = math.exp %x : f32
        %h = arith.truncf %r : f32 to f16
        linalg.yield %h : f16
      } -> tensor<64x64xf16>
      %vt = tensor.extract_slice %v[%j, 0] [64, 512] [1, 1] : tensor<1024x512xf16> to tensor<64x512xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %vt : tensor<64x64xf16>, tensor<64x512xf16>) outs(%acc : tensor<64x512xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x512xf32>
      scf.yield %next : tensor<64x512xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [64, 512] [1, 1] : tensor<64x512xf32> into tensor<64x512xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<64x512xf32>
}

// Every matmul reads tiles of rings that another one reads as well, and rings of two slots have none for
// a tile that waits for a late matmul: none runs late. Both scores start together, and exp runs beside
// the second one.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8 stages=2" --partition-warps --split-matmuls --schedule-loops --pipeline-loops | filecheck %s

// CHECK-LABEL: func.func @two_scores
// CHECK-NOT: scf.if
// CHECK: scf.for {{.*}}iter_args
// CHECK: %[[S:.*]] = "neptune.mma_start"
// CHECK: %[[D:.*]] = "neptune.mma_start"
// CHECK: "neptune.mma_wait"(%[[S]]) {pending = 1
// CHECK: math.exp
// CHECK: "neptune.mma_wait"(%[[D]]) {pending = 0
// CHECK: %[[O:.*]] = "neptune.mma_start"
// CHECK: "neptune.mma_wait"(%[[O]]) {pending = 0
// CHECK: scf.yield
// CHECK-NOT: neptune.stage =

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @two_scores(%a: tensor<128x64xf16>, %c: tensor<128x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x64xf32>) {
    %at = tensor.extract_slice %a[0, 0] [128, 64] [1, 1] : tensor<128x64xf16> to tensor<128x64xf16>
    %ct = tensor.extract_slice %c[0, 0] [128, 64] [1, 1] : tensor<128x64xf16> to tensor<128x64xf16>
    %o = tensor.empty() : tensor<128x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<1024x64xf16> to tensor<64x64xf16>
      %vt = tensor.extract_slice %v[%j, 0] [64, 64] [1, 1] : tensor<1024x64xf16> to tensor<64x64xf16>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<128x64xf16>, tensor<64x64xf16>) outs(%start : tensor<128x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<128x64xf32>) outs(%o : tensor<128x64xf32>) {
      ^bb0(%x: f32, %w: f32):
        %r = math.exp %x : f32
        linalg.yield %r : f32
      } -> tensor<128x64xf32>
      %d = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%ct, %vt : tensor<128x64xf16>, tensor<64x64xf16>) outs(%start : tensor<128x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      %he = tensor.empty() : tensor<128x64xf16>
      %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%p, %d : tensor<128x64xf32>, tensor<128x64xf32>) outs(%he : tensor<128x64xf16>) {
      ^bb0(%x: f32, %y: f32, %w: f16):
        %m = arith.mulf %x, %y : f32
        %t = arith.truncf %m : f32 to f16
        linalg.yield %t : f16
      } -> tensor<128x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%h, %kt : tensor<128x64xf16>, tensor<64x64xf16>) outs(%acc : tensor<128x64xf32>) {
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

// (A K^T) (B V^T) K, with tiles so large that memory has one slot for those of an iteration: K, which
// two matmuls read, has a second one, so the last matmul may run beside the first ones of the next
// iteration. Where none may be late, no tile has.
// RUN: neptune-opt %s --set-choices=late=1 --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --set-choices=late=0 --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps 2>/dev/null | filecheck %s --check-prefix=NONE

// CHECK-DAG: %[[V:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<64x256xf16>, 1 : i64>
// CHECK-DAG: %[[K:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<64x256xf16>, 2 : i64>
// CHECK: scf.for {{.*}}iter_args
// CHECK-DAG: "neptune.aref_get"(%[[K]]) {{.*}}neptune.stage = 0
// CHECK-DAG: "neptune.aref_get"(%[[V]]) {{.*}}neptune.stage = 0
// CHECK-DAG: "neptune.aref_get"(%[[K]]) {{.*}}neptune.reader = 1 : i64, neptune.stage = 1

// NONE-NOT: !neptune.aref<tensor<64x256xf16>, 2 : i64>

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @both(%a: tensor<128x256xf16>, %b: tensor<128x256xf16>, %k: tensor<1024x256xf16>, %v: tensor<1024x256xf16>) -> tensor<128x256xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x256xf32>
  %out = scf.forall (%n) in (1) shared_outs(%dst = %e) -> (tensor<128x256xf32>) {
    %at = tensor.extract_slice %a[0, 0] [128, 256] [1, 1] : tensor<128x256xf16> to tensor<128x256xf16>
    %bt = tensor.extract_slice %b[0, 0] [128, 256] [1, 1] : tensor<128x256xf16> to tensor<128x256xf16>
    %o = tensor.empty() : tensor<128x256xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x256xf32>) -> tensor<128x256xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<128x256xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [64, 256] [1, 1] : tensor<1024x256xf16> to tensor<64x256xf16>
      %vt = tensor.extract_slice %v[%j, 0] [64, 256] [1, 1] : tensor<1024x256xf16> to tensor<64x256xf16>
      %se = tensor.empty() : tensor<128x64xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<128x64xf32>) -> tensor<128x64xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<128x256xf16>, tensor<64x256xf16>) outs(%z : tensor<128x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      %d = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%bt, %vt : tensor<128x256xf16>, tensor<64x256xf16>) outs(%z : tensor<128x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      %pe = tensor.empty() : tensor<128x64xf16>
      %p = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s, %d : tensor<128x64xf32>, tensor<128x64xf32>) outs(%pe : tensor<128x64xf16>) {
      ^bb0(%x: f32, %y: f32, %w: f16):
        %r = math.exp %x : f32
        %q = arith.mulf %r, %y : f32
        %h = arith.truncf %q : f32 to f16
        linalg.yield %h : f16
      } -> tensor<128x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %kt : tensor<128x64xf16>, tensor<64x256xf16>) outs(%acc : tensor<128x256xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x256xf32>
      scf.yield %next : tensor<128x256xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [128, 256] [1, 1] : tensor<128x256xf32> into tensor<128x256xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x256xf32>
}

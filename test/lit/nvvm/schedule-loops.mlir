// exp(A K^T) V, streamed: S = A K^T runs for its own iteration, exp and the second matmul for the
// one before. Where the sum is read in its own iteration, that runs late too. A matmul of loaded
// tiles has nothing beside it and stays.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.err
// By the choice `late=0` ops have an order at most:
// RUN: neptune-opt %s --set-choices=late=0 --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --schedule-loops 2>/dev/null | filecheck %s --check-prefix=NONE

// CHECK-LABEL: func.func @fits
// CHECK: scf.for {{.*}}iter_args
// CHECK: "neptune.aref_get"{{.*}}neptune.order = 0 : i64, neptune.stage = 0
// CHECK: "neptune.mma_start"{{.*}}neptune.order = 1 : i64, neptune.stage = 0
// CHECK: "neptune.mma_wait"{{.*}}neptune.order = 5 : i64, neptune.stage = 0
// CHECK: "neptune.aref_release"{{.*}}neptune.order = 6 : i64, neptune.stage = 0
// CHECK: linalg.generic{{.*}}neptune.order = 2 : i64, neptune.stage = 1
// CHECK: "neptune.aref_get"{{.*}}neptune.order = 3 : i64, neptune.stage = 1
// CHECK: "neptune.mma_start"{{.*}}neptune.order = 4 : i64, neptune.stage = 1
// CHECK: "neptune.mma_wait"{{.*}}neptune.order = 7 : i64, neptune.stage = 1
// CHECK: "neptune.aref_release"{{.*}}neptune.order = 8 : i64, neptune.stage = 1

// CHECK-LABEL: func.func @read_again
// CHECK: "neptune.mma_wait"{{.*}}tensor<128x64xf32>
// CHECK: linalg.generic{{.*}}outs({{.*}}tensor<128x64xf32>){{.*}}neptune.stage = 1

// CHECK-LABEL: func.func @loaded
// CHECK-NOT: neptune.stage =

// NONE: func.func @fits
// NONE-NOT: neptune.stage = 1
// NONE: func.func @read_again
// NONE-NOT: neptune.stage = 1

// REMARK-COUNT-1: remark: a loop is not pipelined: nothing runs beside its matmuls

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

func.func @read_again(%a: tensor<128x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<128x64xf32> {
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
      %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%next : tensor<128x64xf32>) outs(%o : tensor<128x64xf32>) {
      ^bb0(%x: f32, %w: f32):
        %t = arith.addf %x, %x : f32
        linalg.yield %t : f32
      } -> tensor<128x64xf32>
      scf.yield %twice : tensor<128x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<128x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x64xf32>
}

func.func @loaded(%x: tensor<128x1024xf16>, %w: tensor<1024x64xf16>) -> tensor<128x64xf32> {
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

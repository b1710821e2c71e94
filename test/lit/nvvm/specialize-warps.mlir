// exp(A K^T) V, streamed: TMA and wgmma can do it with 64 rows for each of two consumer groups; not
// with 32 rows in all, and the remark says why.
// RUN: neptune-opt %s --specialize-warps="turns=true" 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.err
// RUN: neptune-opt %s --specialize-warps="resident=false" 2>/dev/null | filecheck %s --check-prefix=PLAIN

// CHECK-LABEL: func.func @fits
// CHECK: neptune.consumers = 2 : i64, neptune.resident, neptune.turns
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: neptune.consumers

// PLAIN-LABEL: func.func @fits
// PLAIN-NOT: neptune.resident
// PLAIN-NOT: neptune.turns
// PLAIN: neptune.consumers = 2
// PLAIN-LABEL: func.func @few_rows

// REMARK: remark: warps are not specialised: {{.*}}a matmul of 32 rows

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

func.func @few_rows(%a: tensor<32x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<32x64xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<32x64xf32>) {
    %at = tensor.extract_slice %a[0, 0] [32, 64] [1, 1] : tensor<32x64xf16> to tensor<32x64xf16>
    %o = tensor.empty() : tensor<32x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<32x64xf32>) -> tensor<32x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c128 iter_args(%acc = %start) -> (tensor<32x64xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %se = tensor.empty() : tensor<32x128xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<32x128xf32>) -> tensor<32x128xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<32x64xf16>, tensor<128x64xf16>) outs(%z : tensor<32x128xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<32x128xf32>
      %pe = tensor.empty() : tensor<32x128xf16>
      %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<32x128xf32>) outs(%pe : tensor<32x128xf16>) {
      ^bb0(%x: f32, %w: f16):
        %r = math.exp %x : f32
        %h = arith.truncf %r : f32 to f16
        linalg.yield %h : f16
      } -> tensor<32x128xf16>
      %vt = tensor.extract_slice %v[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%p, %vt : tensor<32x128xf16>, tensor<128x64xf16>) outs(%acc : tensor<32x64xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %m : f32
        linalg.yield %t : f32
      } -> tensor<32x64xf32>
      scf.yield %next : tensor<32x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [32, 64] [1, 1] : tensor<32x64xf32> into tensor<32x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<32x64xf32>
}

// Four blocks of a cluster share the sum of a program: each runs a quarter of the loop, writes what it
// has, and warp w goes on in block w modulo 4 with what the others have written.
// RUN: neptune-opt %s --set-choices="sums=4 resident=0" --specialize-warps --assign-layouts=target=sm_90a --partition-warps --form-clusters | filecheck %s
// RUN: neptune-opt %s --set-choices="sums=4 resident=0" --specialize-warps --assign-layouts=target=sm_90a --partition-warps --form-clusters --split-matmuls --distribute-tiles=entry=product 2>/dev/null | filecheck %s --check-prefix=CODE
// Not where blocks stay, nor more blocks than warps.
// RUN: neptune-opt %s --set-choices="sums=4" --specialize-warps --assign-layouts=target=sm_90a --partition-warps --form-clusters | filecheck %s --check-prefix=ALONE
// RUN: neptune-opt %s --set-choices="sums=5 resident=0" --specialize-warps --assign-layouts=target=sm_90a --partition-warps --form-clusters | filecheck %s --check-prefix=ALONE

// CHECK-LABEL: func.func @product
// CHECK: neptune.tuned = {{.*}}sums = 4 : i64
// A sum that begins with something else is not shared.
// CHECK-LABEL: func.func @from_one
// CHECK-NOT: sums = 4

// CODE: gpu.func @{{.*}} nvvm.cluster_dim = array<i32: 4, 1, 1>
// CODE: %cluster_ctarank
// CODE: wgmma.mma_async
// CODE: st.shared.v4.f32
// CODE: barrier.cluster.arrive.release;
// CODE: mapa.shared::cluster
// CODE: ld.shared::cluster.v4.f32
// the producer's warps come to that meeting too; then all meet once more
// CODE: cp.async.bulk.tensor
// CODE: barrier.cluster.arrive.relaxed;
// CODE: barrier.cluster.arrive.relaxed;
// CODE: gpu.return

// ALONE-NOT: sums = {{[1-9]}}

#mk = affine_map<(i, j, k) -> (i, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(b) -> (b * 64)>

func.func @product(%x: tensor<128x1024xf16>, %w: tensor<1024x128xf16>) -> tensor<128x128xf16> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf16>
  %out = scf.forall (%b) in (2) shared_outs(%dst = %e) -> (tensor<128x128xf16>) {
    %row = affine.apply #row(%b)
    %o = tensor.empty() : tensor<64x128xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64x128xf32>) -> tensor<64x128xf32>
    %sum = scf.for %k = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<64x128xf32>) {
      %xt = tensor.extract_slice %x[%row, %k] [64, 64] [1, 1] : tensor<128x1024xf16> to tensor<64x64xf16>
      %wt = tensor.extract_slice %w[%k, 0] [64, 128] [1, 1] : tensor<1024x128xf16> to tensor<64x128xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<64x64xf16>, tensor<64x128xf16>) outs(%acc : tensor<64x128xf32>) {
      ^bb0(%p: f16, %q: f16, %a: f32):
        %pf = arith.extf %p : f16 to f32
        %qf = arith.extf %q : f16 to f32
        %m = arith.mulf %pf, %qf : f32
        %t = arith.addf %a, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x128xf32>
      scf.yield %next : tensor<64x128xf32>
    }
    %re = tensor.empty() : tensor<64x128xf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<64x128xf32>) outs(%re : tensor<64x128xf16>) {
    ^bb0(%p: f32, %q: f16):
      %h = arith.truncf %p : f32 to f16
      linalg.yield %h : f16
    } -> tensor<64x128xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rounded into %dst[%row, 0] [64, 128] [1, 1] : tensor<64x128xf16> into tensor<128x128xf16>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x128xf16>
}

func.func @from_one(%x: tensor<128x1024xf16>, %w: tensor<1024x128xf16>) -> tensor<128x128xf16> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<128x128xf16>
  %out = scf.forall (%b) in (2) shared_outs(%dst = %e) -> (tensor<128x128xf16>) {
    %row = affine.apply #row(%b)
    %o = tensor.empty() : tensor<64x128xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64x128xf32>) -> tensor<64x128xf32>
    %sum = scf.for %k = %c0 to %c1024 step %c64 iter_args(%acc = %start) -> (tensor<64x128xf32>) {
      %xt = tensor.extract_slice %x[%row, %k] [64, 64] [1, 1] : tensor<128x1024xf16> to tensor<64x64xf16>
      %wt = tensor.extract_slice %w[%k, 0] [64, 128] [1, 1] : tensor<1024x128xf16> to tensor<64x128xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<64x64xf16>, tensor<64x128xf16>) outs(%acc : tensor<64x128xf32>) {
      ^bb0(%p: f16, %q: f16, %a: f32):
        %pf = arith.extf %p : f16 to f32
        %qf = arith.extf %q : f16 to f32
        %m = arith.mulf %pf, %qf : f32
        %t = arith.addf %a, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x128xf32>
      scf.yield %next : tensor<64x128xf32>
    }
    %re = tensor.empty() : tensor<64x128xf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<64x128xf32>) outs(%re : tensor<64x128xf16>) {
    ^bb0(%p: f32, %q: f16):
      %h = arith.truncf %p : f32 to f16
      linalg.yield %h : f16
    } -> tensor<64x128xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rounded into %dst[%row, 0] [64, 128] [1, 1] : tensor<64x128xf16> into tensor<128x128xf16>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x128xf16>
}

// Results of specialised warps leave by boxes of a tensor map where these describe all that is written:
// a tile that ends where its tensor does, and of one that may end before the warps with all of their
// rows. With `boxed=false` no result does.
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps --distribute-tiles="entry=ragged" 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps --distribute-tiles="entry=cut" 2>/dev/null | filecheck %s --check-prefix=ROWS
// RUN: neptune-opt %s --specialize-warps="boxed=false" --assign-layouts=target=sm_90a --partition-warps --distribute-tiles="entry=ragged" 2>/dev/null | filecheck %s --check-prefix=NONE

// CHECK: neptune.plan = {{.*}}map{{[^,]*}}, {{[^,]*}}buffer{{[^,]*}}, 0, 0, 16, 64]
// CHECK: gpu.func
// CHECK: cp.async.bulk.wait_group.read 0;
// CHECK: bar.warp.sync
// CHECK: llvm.store
// CHECK: fence.proxy.async.shared::cta;
// CHECK-NEXT: bar.warp.sync
// CHECK: elect.sync {{.*}}cp.async.bulk.tensor.3d.global.shared::cta.bulk_group {{.*}}cp.async.bulk.commit_group;
// CHECK: cp.async.bulk.wait_group.read 0;

// ROWS: cp.async.bulk.wait_group.read 0;
// ROWS: elect.sync {{.*}}cp.async.bulk.tensor.3d.global.shared::cta.bulk_group
// ROWS-NEXT: } else {
// ROWS-NEXT: cp.async.bulk.wait_group.read 0;
// ROWS-NOT: cp.async.bulk.tensor.3d.global
// ROWS: @p st.global.v4.b32

// NONE-NOT: cp.async.bulk.tensor.3d.global
// NONE: st.global.v4.b32
// NONE-NOT: cp.async.bulk.tensor.3d.global

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(b) -> (b * 128)>
#rest = affine_map<(b) -> (128, b * -128 + 200)>
#early = affine_map<(b) -> (128, b * -128 + 190)>
#left = affine_map<(n) -> (-n + 128)>

func.func @ragged(%a: tensor<200x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<200x64xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<200x64xf16>
  %out = scf.forall (%b) in (2) shared_outs(%dst = %e) -> (tensor<200x64xf16>) {
    %row = affine.apply #row(%b)
    %rows = affine.min #rest(%b)
    %written = affine.min #rest(%b)
    %nothing = arith.constant 0.0 : f16
    %left = affine.apply #left(%rows)
    %as = tensor.extract_slice %a[%row, 0] [%rows, 64] [1, 1] : tensor<200x64xf16> to tensor<?x64xf16>
    %at = tensor.pad %as low[0, 0] high[%left, 0] {
    ^bb0(%i: index, %j: index):
      tensor.yield %nothing : f16
    } : tensor<?x64xf16> to tensor<128x64xf16>
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
    %re = tensor.empty() : tensor<128x64xf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<128x64xf32>) outs(%re : tensor<128x64xf16>) {
    ^bb0(%x: f32, %w: f16):
      %h = arith.truncf %x : f32 to f16
      linalg.yield %h : f16
    } -> tensor<128x64xf16>
    %part = tensor.extract_slice %rounded[0, 0] [%written, 64] [1, 1] : tensor<128x64xf16> to tensor<?x64xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %dst[%row, 0] [%written, 64] [1, 1] : tensor<?x64xf16> into tensor<200x64xf16>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<200x64xf16>
}

func.func @cut(%a: tensor<200x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> tensor<200x64xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<200x64xf16>
  %out = scf.forall (%b) in (2) shared_outs(%dst = %e) -> (tensor<200x64xf16>) {
    %row = affine.apply #row(%b)
    %rows = affine.min #rest(%b)
    %written = affine.min #early(%b)
    %nothing = arith.constant 0.0 : f16
    %left = affine.apply #left(%rows)
    %as = tensor.extract_slice %a[%row, 0] [%rows, 64] [1, 1] : tensor<200x64xf16> to tensor<?x64xf16>
    %at = tensor.pad %as low[0, 0] high[%left, 0] {
    ^bb0(%i: index, %j: index):
      tensor.yield %nothing : f16
    } : tensor<?x64xf16> to tensor<128x64xf16>
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
    %re = tensor.empty() : tensor<128x64xf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<128x64xf32>) outs(%re : tensor<128x64xf16>) {
    ^bb0(%x: f32, %w: f16):
      %h = arith.truncf %x : f32 to f16
      linalg.yield %h : f16
    } -> tensor<128x64xf16>
    %part = tensor.extract_slice %rounded[0, 0] [%written, 64] [1, 1] : tensor<128x64xf16> to tensor<?x64xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %part into %dst[%row, 0] [%written, 64] [1, 1] : tensor<?x64xf16> into tensor<200x64xf16>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<200x64xf16>
}

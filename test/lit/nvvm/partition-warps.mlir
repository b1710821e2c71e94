// A program of two consumer groups falls in two: the producer's loops and puts, and the rest with
// gets and releases. The first two loops load equal tiles and share a ring; the third has its own.
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps | filecheck %s
// RUN: neptune-opt %s --specialize-warps=resident=false --assign-layouts=target=sm_90a --partition-warps | filecheck %s --check-prefix=ALONE
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps --split-matmuls --distribute-tiles=entry=three_loops 2>/dev/null | filecheck %s --check-prefix=CODE
// RUN: not neptune-opt %s --specialize-warps --partition-warps 2>&1 | filecheck %s --check-prefix=LAYOUTS
// RUN: not neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --split-matmuls 2>&1 | filecheck %s --check-prefix=ORDER
// RUN: not neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --distribute-tiles=entry=three_loops 2>&1 | filecheck %s --check-prefix=ORDER
// RUN: sed -e 's/linear_dim_0>\]/linear_dim_0>], neptune.consumers = 1 : i64/' %s | not neptune-opt - --assign-layouts=target=sm_90a --partition-warps 2>&1 | filecheck %s --check-prefix=UNFIT

// CHECK-LABEL: func.func @three_loops
// CHECK: scf.forall (%[[B:.*]]) in (4)
// two slots for what a program loads once: the next program's comes early
// CHECK-NEXT: %[[A:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 2 : i64>
// CHECK-NEXT: %[[A2:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x128xf16>, 2 : i64>
// CHECK-NEXT: %[[K:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 2 : i64>
// CHECK-NEXT: %[[L:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x128xf16>, 2 : i64>
// CHECK-NEXT: "neptune.producer"() ({
// CHECK: %[[ROW:.*]] = affine.apply {{.*}}(%[[B]])
// CHECK: %[[AT:.*]] = tensor.extract_slice %arg0[%[[ROW]], 0]
// CHECK-NOT: neptune.layout
// CHECK: "neptune.aref_put"(%[[A]], %[[AT]])
// CHECK: scf.for %[[J:.*]] = %c0 to %c512 step %c128 {
// CHECK: %[[KT:.*]] = tensor.extract_slice %arg1[%[[J]], 0]
// CHECK-NEXT: "neptune.aref_put"(%[[K]], %[[KT]])
// CHECK-NEXT: }
// CHECK: scf.for %{{.*}} = %c512 to %c1024 step %c128 {
// CHECK: "neptune.aref_put"(%[[K]],
// CHECK: scf.for
// CHECK: "neptune.aref_put"(%[[L]],
// CHECK: }) : () -> ()
// the consumers load nothing; they get a tile as late as they need it, and release it at once
// CHECK-NOT: tensor.extract_slice
// CHECK: %[[QUERY:.*]] = "neptune.aref_get"(%[[A]])
// CHECK: scf.for
// CHECK: linalg.fill
// CHECK-NEXT: %[[KEY:.*]] = "neptune.aref_get"(%[[K]])
// CHECK-NEXT: linalg.generic {{.*}} ins(%[[QUERY]], %[[KEY]]
// CHECK: "neptune.aref_release"(%[[KEY]])
// CHECK: scf.for
// CHECK: %[[KEY2:.*]] = "neptune.aref_get"(%[[K]])
// CHECK: "neptune.aref_release"(%[[KEY2]])
// CHECK: scf.yield
// CHECK-NEXT: }
// nobody reads the first tile behind the second loop
// CHECK-NEXT: "neptune.aref_release"(%[[QUERY]])
// CHECK: scf.for
// CHECK: %[[OTHER:.*]] = "neptune.aref_get"(%[[L]])
// CHECK: "neptune.aref_release"(%[[OTHER]])
// CHECK-LABEL: func.func @unmarked
// CHECK-NOT: neptune.aref
// CHECK-NOT: neptune.producer

// ALONE: "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 1 : i64>

// CODE: gpu.func @three_loops_0
// CODE: wgmma.mma_async
// CODE: cp.async.bulk.tensor

// LAYOUTS: error: tile values have no layouts
// LAYOUTS: run assign-layouts first
// ORDER: error: a program for specialised warps has no producer
// ORDER: run partition-warps first
// UNFIT: error: a program marked for specialised warps does not suit them: a matmul of 128 rows, not 64 for each of 1 groups
// UNFIT: specialize-warps marks those that do

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(d) -> (d * 128)>

func.func @three_loops(%a: tensor<512x64xf16>, %k: tensor<1024x64xf16>, %a2: tensor<512x128xf16>, %l: tensor<1024x128xf16>) -> tensor<512x128xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x128xf32>
  %out = scf.forall (%b) in (4) shared_outs(%dst = %e) -> (tensor<512x128xf32>) {
    %row = affine.apply #rows(%b)
    %at = tensor.extract_slice %a[%row, 0] [128, 64] [1, 1] : tensor<512x64xf16> to tensor<128x64xf16>
    %bt = tensor.extract_slice %a2[%row, 0] [128, 128] [1, 1] : tensor<512x128xf16> to tensor<128x128xf16>
    %o = tensor.empty() : tensor<128x128xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x128xf32>) -> tensor<128x128xf32>
    %m1 = scf.for %j = %c0 to %c512 step %c128 iter_args(%acc = %start) -> (tensor<128x128xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %se = tensor.empty() : tensor<128x128xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<128x128xf32>) -> tensor<128x128xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<128x64xf16>, tensor<128x64xf16>) outs(%z : tensor<128x128xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %p = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %p : f32
        linalg.yield %t : f32
      } -> tensor<128x128xf32>
      %next = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<128x128xf32>) outs(%acc : tensor<128x128xf32>) {
      ^bb0(%x: f32, %w: f32):
        %m = arith.maximumf %x, %w : f32
        linalg.yield %m : f32
      } -> tensor<128x128xf32>
      scf.yield %next : tensor<128x128xf32>
    }
    %m2 = scf.for %j = %c512 to %c1024 step %c128 iter_args(%acc = %m1) -> (tensor<128x128xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      %se = tensor.empty() : tensor<128x128xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<128x128xf32>) -> tensor<128x128xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%at, %kt : tensor<128x64xf16>, tensor<128x64xf16>) outs(%z : tensor<128x128xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %p = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %p : f32
        linalg.yield %t : f32
      } -> tensor<128x128xf32>
      %next = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<128x128xf32>) outs(%acc : tensor<128x128xf32>) {
      ^bb0(%x: f32, %w: f32):
        %m = arith.maximumf %x, %w : f32
        linalg.yield %m : f32
      } -> tensor<128x128xf32>
      scf.yield %next : tensor<128x128xf32>
    }
    %m3 = scf.for %j = %c0 to %c1024 step %c128 iter_args(%acc = %m2) -> (tensor<128x128xf32>) {
      %kt = tensor.extract_slice %l[%j, 0] [128, 128] [1, 1] : tensor<1024x128xf16> to tensor<128x128xf16>
      %se = tensor.empty() : tensor<128x128xf32>
      %z = linalg.fill ins(%zero : f32) outs(%se : tensor<128x128xf32>) -> tensor<128x128xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%bt, %kt : tensor<128x128xf16>, tensor<128x128xf16>) outs(%z : tensor<128x128xf32>) {
      ^bb0(%x: f16, %y: f16, %w: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %p = arith.mulf %xf, %yf : f32
        %t = arith.addf %w, %p : f32
        linalg.yield %t : f32
      } -> tensor<128x128xf32>
      %next = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%s : tensor<128x128xf32>) outs(%acc : tensor<128x128xf32>) {
      ^bb0(%x: f32, %w: f32):
        %m = arith.maximumf %x, %w : f32
        linalg.yield %m : f32
      } -> tensor<128x128xf32>
      scf.yield %next : tensor<128x128xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %m3 into %dst[%row, 0] [128, 128] [1, 1] : tensor<128x128xf32> into tensor<512x128xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<512x128xf32>
}

func.func @unmarked(%a: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<64xf32>) {
    %t = tensor.extract_slice %a[0] [64] [1] : tensor<64xf32> to tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %dst[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  }
  return %out : tensor<64xf32>
}

// Factors of f32 that may be rounded to TF32. Instructions transpose none: the right factor, whose
// rows do not run along the sum, becomes the left one, and comes to registers.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --run-on-products | filecheck %s --check-prefix=STAYS
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a warps=8" --partition-warps --split-matmuls --run-on-products --distribute-tiles=entry=across | filecheck %s --check-prefix=CODE

// CHECK-LABEL: func.func @across
// CHECK: linalg.generic
// CHECK-SAME: neptune.instruction = "16x8x8 f32 in order pairs"
// CHECK-SAME: neptune.swapped
// CHECK: neptune.consumers = 2
// CHECK-LABEL: func.func @along
// CHECK: linalg.generic
// CHECK-SAME: neptune.instruction = "16x8x8 f32 in order"
// CHECK-NOT: neptune.swapped
// CHECK: neptune.consumers = 2

// The next iteration would write the registers that a product reads.
// STAYS-LABEL: func.func @across
// STAYS-NOT: neptune.runs_on
// STAYS-LABEL: func.func @along
// STAYS: neptune.runs_on

// CODE-LABEL: gpu.func @across
// CODE: wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32
// CODE-SAME: b, p, 1, 1;
// CODE: wgmma.wait_group.sync.aligned 0

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>

func.func @across(%x: tensor<64x1024xf32>, %w: tensor<1024x128xf32>) -> tensor<64x128xf32>
    attributes {neptune.precision = "tf32"} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x128xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<64x128xf32>) {
    %o = tensor.empty() : tensor<64x128xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<64x128xf32>) -> tensor<64x128xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c32 iter_args(%acc = %start) -> (tensor<64x128xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [64, 32] [1, 1] : tensor<64x1024xf32> to tensor<64x32xf32>
      %wt = tensor.extract_slice %w[%j, 0] [32, 128] [1, 1] : tensor<1024x128xf32> to tensor<32x128xf32>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<64x32xf32>, tensor<32x128xf32>) outs(%acc : tensor<64x128xf32>) {
      ^bb0(%p: f32, %q: f32, %w0: f32):
        %m = arith.mulf %p, %q : f32
        %t = arith.addf %w0, %m : f32
        linalg.yield %t : f32
      } -> tensor<64x128xf32>
      scf.yield %next : tensor<64x128xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %sum into %dst[0, 0] [64, 128] [1, 1] : tensor<64x128xf32> into tensor<64x128xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<64x128xf32>
}

func.func @along(%x: tensor<128x1024xf32>, %w: tensor<64x1024xf32>) -> tensor<128x64xf32>
    attributes {neptune.precision = "tf32"} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x64xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x64xf32>) {
    %o = tensor.empty() : tensor<128x64xf32>
    %start = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %sum = scf.for %j = %c0 to %c1024 step %c32 iter_args(%acc = %start) -> (tensor<128x64xf32>) {
      %xt = tensor.extract_slice %x[0, %j] [128, 32] [1, 1] : tensor<128x1024xf32> to tensor<128x32xf32>
      %wt = tensor.extract_slice %w[0, %j] [64, 32] [1, 1] : tensor<64x1024xf32> to tensor<64x32xf32>
      %next = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%xt, %wt : tensor<128x32xf32>, tensor<64x32xf32>) outs(%acc : tensor<128x64xf32>) {
      ^bb0(%p: f32, %q: f32, %w0: f32):
        %m = arith.mulf %p, %q : f32
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

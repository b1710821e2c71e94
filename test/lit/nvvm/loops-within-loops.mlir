// A matmul in a loop within a loop: its deep sum is cut, and each tile of a stream is such a sum. The
// producer repeats both loops, and the inner one is pipelined as a loop of its own: exp of a step beside
// the matmul of the step before.
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps 2>/dev/null | filecheck %s --check-prefix=WARPS
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps --split-matmuls --schedule-loops --pipeline-loops 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --specialize-warps --assign-layouts=target=sm_90a --partition-warps --split-matmuls --schedule-loops --pipeline-loops --distribute-tiles 2>/dev/null | filecheck %s --check-prefix=CODE

// WARPS: %[[X:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4
// WARPS: %[[W:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<256x64xf16>, 4
// WARPS: "neptune.producer"
// WARPS: scf.for %[[J:.*]] = %c0 to %c512 step %c256 {
// WARPS-NEXT: scf.for %[[D:.*]] = %c0 to %c576 step %c64 {
// WARPS: tensor.extract_slice %arg0[%{{.*}}, %[[D]]]
// WARPS: "neptune.aref_put"(%[[X]],
// WARPS: tensor.extract_slice %arg1[%[[J]], %[[D]]]
// WARPS: "neptune.aref_put"(%[[W]],
// WARPS: scf.for {{.*}} step %c256 iter_args
// WARPS: scf.for {{.*}} step %c64 iter_args
// WARPS: "neptune.aref_get"(%[[X]])
// WARPS: "neptune.aref_get"(%[[W]])
// WARPS-NOT: tensor.extract_slice
// WARPS: neptune.consumers = 2

// the outer loop, and in it prologue, steady state and epilogue of the inner one
// CHECK-LABEL: func.func @nested
// CHECK: }) : () -> ()
// CHECK: scf.for {{.*}} step %c256 iter_args(%[[MAX:.*]] = {{.*}}) -> (tensor<128xf32>)
// CHECK: scf.if {{.*}} -> (tensor<128x256xf32>, tensor<128x64xf16>)
// CHECK: %[[X0:.*]] = "neptune.aref_get"
// CHECK: linalg.generic{{.*}}ins(%[[X0]] :
// CHECK: math.exp
// CHECK: %[[R:.*]]:2 = scf.for {{.*}} step %c64 iter_args(%[[ACC:.*]] = {{.*}}, %[[OLD:.*]] = {{.*}})
// CHECK: %[[T:.*]] = "neptune.aref_get"
// CHECK: %[[S:.*]] = "neptune.mma_start"(%[[OLD]], %[[T]], %[[ACC]])
// CHECK: math.exp
// CHECK: "neptune.issue_fence"
// CHECK: %[[SUM:.*]] = "neptune.mma_wait"(%[[S]]) {pending = 0
// CHECK: scf.yield %[[SUM]],
// CHECK: %[[ALL:.*]] = scf.if {{.*}} -> (tensor<128x256xf32>)
// CHECK: "neptune.mma_start"(%[[R]]#1, {{.*}}, %[[R]]#0)
// CHECK: "neptune.mma_wait"
// CHECK: linalg.generic{{.*}}ins(%[[ALL]] : {{.*}}outs(%[[MAX]] :

// CODE: gpu.func @nested
// CODE: scf.for
// CODE: scf.for
// CODE: wgmma.mma_async
// CODE: ex2

#map = affine_map<(d0) -> (d0 * 128)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map5 = affine_map<(d0, d1) -> (d0)>
func.func @nested(%arg0: tensor<256x576xf16>, %arg1: tensor<512x576xf16>) -> tensor<256xf32> {
  %c64 = arith.constant 64 : index
  %c576 = arith.constant 576 : index
  %cst = arith.constant 0.000000e+00 : f32
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %c0 = arith.constant 0 : index
  %cst_0 = arith.constant 0xFF800000 : f32
  %0 = tensor.empty() : tensor<256xf32>
  %1 = scf.forall (%arg2) in (2) shared_outs(%arg3 = %0) -> (tensor<256xf32>) {
    %2 = affine.apply #map(%arg2)
    %3 = tensor.empty() : tensor<128xf32>
    %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<128xf32>) -> tensor<128xf32>
    %5 = scf.for %arg4 = %c0 to %c512 step %c256 iter_args(%arg5 = %4) -> (tensor<128xf32>) {
      %6 = tensor.empty() : tensor<128x256xf32>
      %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<128x256xf32>) -> tensor<128x256xf32>
      %8 = scf.for %arg6 = %c0 to %c576 step %c64 iter_args(%arg7 = %7) -> (tensor<128x256xf32>) {
        %10 = tensor.empty() : tensor<128x64xf32>
        %extracted_slice = tensor.extract_slice %arg0[%2, %arg6] [128, 64] [1, 1] : tensor<256x576xf16> to tensor<128x64xf16>
        %11 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%extracted_slice : tensor<128x64xf16>) outs(%10 : tensor<128x64xf32>) {
        ^bb0(%in: f16, %out: f32):
          %13 = arith.extf %in : f16 to f32
          %14 = math.exp %13 : f32
          linalg.yield %14 : f32
        } -> tensor<128x64xf32>
        %extracted_slice_1 = tensor.extract_slice %arg1[%arg4, %arg6] [256, 64] [1, 1] : tensor<512x576xf16> to tensor<256x64xf16>
        %12 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%11, %extracted_slice_1 : tensor<128x64xf32>, tensor<256x64xf16>) outs(%arg7 : tensor<128x256xf32>) {
        ^bb0(%in: f32, %in_2: f16, %out: f32):
          %13 = arith.extf %in_2 : f16 to f32
          %14 = arith.mulf %in, %13 : f32
          %15 = arith.addf %out, %14 : f32
          linalg.yield %15 : f32
        } -> tensor<128x256xf32>
        scf.yield %12 : tensor<128x256xf32>
      }
      %9 = linalg.generic {indexing_maps = [#map1, #map5], iterator_types = ["parallel", "reduction"]} ins(%8 : tensor<128x256xf32>) outs(%arg5 : tensor<128xf32>) {
      ^bb0(%in: f32, %out: f32):
        %10 = arith.maximumf %out, %in : f32
        linalg.yield %10 : f32
      } -> tensor<128xf32>
      scf.yield %9 : tensor<128xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %5 into %arg3[%2] [128] [1] : tensor<128xf32> into tensor<256xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.kernel = "nested"}
  return %1 : tensor<256xf32>
}

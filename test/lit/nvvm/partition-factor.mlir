// A left factor that a loop computes from the tiles that it loads (here scaled rows, and beside them
// the sum of their squares): the tiles come through rings, warps read them as the instruction takes
// the factor, and the product waits for the next iteration.
// RUN: neptune-opt %s --specialize-warps --assign-layouts="target=sm_90a" --partition-warps --split-matmuls --schedule-loops 2>&1 | filecheck %s
// RUN: neptune-opt %s --assign-layouts="target=sm_80 warps=8" 2>&1 | filecheck %s --check-prefix=PORTABLE

// CHECK-NOT: remark
// CHECK-LABEL: func.func @rms
// CHECK-DAG: %[[X:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 6 : i64>
// CHECK-DAG: %[[S:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<64xf16>, 6 : i64>
// CHECK-DAG: %[[W:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<64x128xf16>, 6 : i64>
// CHECK: "neptune.producer"
// CHECK: scf.for
// CHECK-DAG: "neptune.aref_put"(%[[X]]
// CHECK-DAG: "neptune.aref_put"(%[[S]]
// CHECK-DAG: "neptune.aref_put"(%[[W]]
// CHECK: scf.for
// CHECK: %[[T:.*]] = "neptune.aref_get"(%[[X]])
// CHECK: linalg.generic {{.*}} ins(%[[T]] : tensor<128x64xf16>)
// the rows of an operand, 16 columns in 4 registers of a lane
// CHECK-SAME: neptune.iteration = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"
// CHECK: linalg.generic
// CHECK: neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"
// CHECK: "neptune.aref_release"(%[[T]])
// CHECK: "neptune.aref_get"(%[[W]])
// CHECK: "neptune.mma_start"{{.*}}neptune.stage = 1

// PORTABLE-LABEL: func.func @rms
// PORTABLE: [128, 64] [1, 1] {neptune.layout = "shared[2*128 7>>0]"}
// PORTABLE-NOT: linalg.copy
// PORTABLE: neptune.via = "mma"

#mk = affine_map<(i, j, k) -> (i, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>

func.func @rms(%x: tensor<128x1024xf16>, %scale: tensor<1024xf16>, %w: tensor<1024x128xf16>) -> tensor<128x128xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %out = scf.forall (%b) in (1) shared_outs(%dst = %e) -> (tensor<128x128xf32>) {
    %se = tensor.empty() : tensor<128xf32>
    %none = linalg.fill ins(%zero : f32) outs(%se : tensor<128xf32>) -> tensor<128xf32>
    %ae = tensor.empty() : tensor<128x128xf32>
    %start = linalg.fill ins(%zero : f32) outs(%ae : tensor<128x128xf32>) -> tensor<128x128xf32>
    %sums:2 = scf.for %k = %c0 to %c1024 step %c64 iter_args(%ss = %none, %acc = %start) -> (tensor<128xf32>, tensor<128x128xf32>) {
      %xt = tensor.extract_slice %x[0, %k] [128, 64] [1, 1] : tensor<128x1024xf16> to tensor<128x64xf16>
      %squares = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%xt : tensor<128x64xf16>) outs(%ss : tensor<128xf32>) {
      ^bb0(%a: f16, %s: f32):
        %af = arith.extf %a : f16 to f32
        %sq = arith.mulf %af, %af : f32
        %t = arith.addf %s, %sq : f32
        linalg.yield %t : f32
      } -> tensor<128xf32>
      %st = tensor.extract_slice %scale[%k] [64] [1] : tensor<1024xf16> to tensor<64xf16>
      %fe = tensor.empty() : tensor<128x64xf16>
      %factor = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
          ins(%xt, %st : tensor<128x64xf16>, tensor<64xf16>) outs(%fe : tensor<128x64xf16>) {
      ^bb0(%a: f16, %s: f16, %o: f16):
        %m = arith.mulf %a, %s : f16
        linalg.yield %m : f16
      } -> tensor<128x64xf16>
      %wt = tensor.extract_slice %w[%k, 0] [64, 128] [1, 1] : tensor<1024x128xf16> to tensor<64x128xf16>
      %next = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%factor, %wt : tensor<128x64xf16>, tensor<64x128xf16>) outs(%acc : tensor<128x128xf32>) {
      ^bb0(%a: f16, %y: f16, %o: f32):
        %af = arith.extf %a : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %m = arith.mulf %af, %yf : f32
        %t = arith.addf %o, %m : f32
        linalg.yield %t : f32
      } -> tensor<128x128xf32>
      scf.yield %squares, %next : tensor<128xf32>, tensor<128x128xf32>
    }
    %re = tensor.empty() : tensor<128x128xf32>
    %scaled = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sums#1, %sums#0 : tensor<128x128xf32>, tensor<128xf32>) outs(%re : tensor<128x128xf32>) {
    ^bb0(%a: f32, %s: f32, %o: f32):
      %r = math.rsqrt %s : f32
      %m = arith.mulf %a, %r : f32
      linalg.yield %m : f32
    } -> tensor<128x128xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %scaled into %dst[0, 0] [128, 128] [1, 1] : tensor<128x128xf32> into tensor<128x128xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %out : tensor<128x128xf32>
}

// RUN: neptune-opt %s --split-input-file --hold-references | filecheck %s

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#row = affine_map<(i) -> (i)>

// The reference stays unless the maximum is far above it; whoever read the maximum reads what was chosen,
// and the accumulators are left alone where all factors are 1.
// CHECK-LABEL: func.func @running_maximum
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}})
// CHECK: %[[NEW:.*]] = linalg.generic {{.*}}neptune.free
// CHECK: %[[HELD:.*]] = linalg.generic {{.*}} ins(%[[NEW]], %[[M]] : tensor<64xf32>, tensor<64xf32>)
// CHECK-SAME: neptune.layout = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]"
// CHECK: ^bb0(%[[X:.*]]: f32, %[[OLD:.*]]: f32, %{{.*}}: f32):
// CHECK: %[[FAR:.*]] = arith.constant 4.000000e+00
// CHECK: %[[LIMIT:.*]] = arith.addf %[[OLD]], %[[FAR]]
// CHECK: %[[MORE:.*]] = arith.cmpf ogt, %[[X]], %[[LIMIT]]
// CHECK: arith.select %[[MORE]], %[[X]], %[[OLD]]
// CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[HELD]] :
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[HELD]] :
// CHECK: linalg.generic {{.*}} ins(%[[ACC]], %[[C]] : {{.*}}neptune.skips_ones
// CHECK: scf.yield %[[HELD]]

func.func @running_maximum(%x: tensor<64x64xf32>, %n: index) -> tensor<1x64x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %out = tensor.empty() : tensor<1x64x64xf32>
  %r = scf.forall (%b) in (1) shared_outs(%o = %out) -> (tensor<1x64x64xf32>) {
    %e1 = tensor.empty() : tensor<64xf32>
    %e2 = tensor.empty() : tensor<64x64xf32>
    %m0 = linalg.fill ins(%low : f32) outs(%e1 : tensor<64xf32>) -> tensor<64xf32>
    %a0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
    %l:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m = %m0, %acc = %a0) -> (tensor<64xf32>, tensor<64x64xf32>) {
      %new = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<64x64xf32>) outs(%m : tensor<64xf32>) attrs = {neptune.free, neptune.via = "registers"} {
      ^bb0(%in: f32, %old: f32):
        %v = arith.maximumf %old, %in : f32
        linalg.yield %v : f32
      } -> tensor<64xf32>
      %c = linalg.generic {indexing_maps = [#row, #row, #row], iterator_types = ["parallel"]}
          ins(%m, %new : tensor<64xf32>, tensor<64xf32>) outs(%e1 : tensor<64xf32>)
          attrs = {neptune.iteration = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]", neptune.layout = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]", neptune.via = "registers"} {
      ^bb0(%old: f32, %in: f32, %o1: f32):
        %d = arith.subf %old, %in : f32
        %v = math.exp %d : f32
        linalg.yield %v : f32
      } -> tensor<64xf32>
      %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%x, %new : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
      ^bb0(%in: f32, %ref: f32, %o1: f32):
        %d = arith.subf %in, %ref : f32
        %v = math.exp %d : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      %h = tensor.empty() : tensor<64x64xf32>
      %shared = linalg.copy ins(%p : tensor<64x64xf32>) outs(%h : tensor<64x64xf32>) -> tensor<64x64xf32>
      %scaled = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%acc, %c : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
      ^bb0(%in: f32, %factor: f32, %o1: f32):
        %v = arith.mulf %in, %factor : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      %sum = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%shared : tensor<64x64xf32>) outs(%scaled : tensor<64x64xf32>) {
      ^bb0(%in: f32, %old: f32):
        %v = arith.addf %old, %in : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      scf.yield %new, %sum : tensor<64xf32>, tensor<64x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %l#1 into %o[%b, 0, 0] [1, 64, 64] [1, 1, 1] : tensor<64x64xf32> into tensor<1x64x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.consumers = 1 : i64}
  return %r : tensor<1x64x64xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#row = affine_map<(i) -> (i)>

// Where somebody reads the maximum itself, it is not free.
// CHECK-LABEL: func.func @not_free
// CHECK-NOT: 4.000000e+00
func.func @not_free(%x: tensor<64x64xf32>, %n: index) -> tensor<1x64x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %out = tensor.empty() : tensor<1x64x64xf32>
  %r = scf.forall (%b) in (1) shared_outs(%o = %out) -> (tensor<1x64x64xf32>) {
    %e1 = tensor.empty() : tensor<64xf32>
    %e2 = tensor.empty() : tensor<64x64xf32>
    %m0 = linalg.fill ins(%low : f32) outs(%e1 : tensor<64xf32>) -> tensor<64xf32>
    %a0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64x64xf32>) -> tensor<64x64xf32>
    %l:2 = scf.for %j = %c0 to %n step %c64 iter_args(%m = %m0, %acc = %a0) -> (tensor<64xf32>, tensor<64x64xf32>) {
      %new = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<64x64xf32>) outs(%m : tensor<64xf32>) attrs = {neptune.via = "registers"} {
      ^bb0(%in: f32, %old: f32):
        %v = arith.maximumf %old, %in : f32
        linalg.yield %v : f32
      } -> tensor<64xf32>
      %c = linalg.generic {indexing_maps = [#row, #row, #row], iterator_types = ["parallel"]}
          ins(%m, %new : tensor<64xf32>, tensor<64xf32>) outs(%e1 : tensor<64xf32>)
          attrs = {neptune.iteration = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]", neptune.layout = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]", neptune.via = "registers"} {
      ^bb0(%old: f32, %in: f32, %o1: f32):
        %d = arith.subf %old, %in : f32
        %v = math.exp %d : f32
        linalg.yield %v : f32
      } -> tensor<64xf32>
      %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%x, %new : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
      ^bb0(%in: f32, %ref: f32, %o1: f32):
        %d = arith.subf %in, %ref : f32
        %v = math.exp %d : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      %h = tensor.empty() : tensor<64x64xf32>
      %shared = linalg.copy ins(%p : tensor<64x64xf32>) outs(%h : tensor<64x64xf32>) -> tensor<64x64xf32>
      %scaled = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%acc, %c : tensor<64x64xf32>, tensor<64xf32>) outs(%e2 : tensor<64x64xf32>) {
      ^bb0(%in: f32, %factor: f32, %o1: f32):
        %v = arith.mulf %in, %factor : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      %sum = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
          ins(%shared : tensor<64x64xf32>) outs(%scaled : tensor<64x64xf32>) {
      ^bb0(%in: f32, %old: f32):
        %v = arith.addf %old, %in : f32
        linalg.yield %v : f32
      } -> tensor<64x64xf32>
      scf.yield %new, %sum : tensor<64xf32>, tensor<64x64xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %l#1 into %o[%b, 0, 0] [1, 64, 64] [1, 1, 1] : tensor<64x64xf32> into tensor<1x64x64xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>], neptune.consumers = 1 : i64}
  return %r : tensor<1x64x64xf32>
}

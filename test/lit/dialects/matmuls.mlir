// Two matmuls that overlap, as text and back; cse and canonicalize leave them alone.
// RUN: neptune-opt %s --canonicalize --cse | neptune-opt - | filecheck %s

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#mn = affine_map<(i, j, k) -> (i, j)>

// CHECK: %[[ONE:.*]] = "neptune.mma_start"({{.*}}-> !neptune.pending<tensor<64x64xf32>>
// CHECK: %[[TWO:.*]] = "neptune.mma_start"
// CHECK: "neptune.mma_wait"(%[[ONE]]) {{.*}}pending = 1
// CHECK: "neptune.mma_wait"(%[[TWO]]) {{.*}}pending = 0

func.func @overlap(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %one = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [#mk, #nk, #mn]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  %two = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [#mk, #nk, #mn]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  %s = "neptune.mma_wait"(%one) {pending = 1 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  %t = "neptune.mma_wait"(%two) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return %s, %t : tensor<64x64xf32>, tensor<64x64xf32>
}

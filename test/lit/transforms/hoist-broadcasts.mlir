// RUN: neptune-opt %s --hoist-broadcasts --canonicalize | filecheck %s

// exp(a[i]) is computed over i alone.
// CHECK-LABEL: func.func @rows
// CHECK: %[[T:.*]] = linalg.generic {{.*}}iterator_types = ["parallel"]} ins(%arg1 : tensor<8xf32>)
// CHECK:   math.exp
// CHECK: linalg.generic {{.*}} ins(%arg0, {{.*}}%[[T]] : tensor<8x16xf32>
// CHECK-NOT: math.exp
// CHECK: return
func.func @rows(%x: tensor<8x16xf32>, %a: tensor<8xf32>) -> tensor<8x16xf32> {
  %e = tensor.empty() : tensor<8x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %a : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%in: f32, %row: f32, %out: f32):
    %f = math.exp %row : f32
    %y = arith.mulf %in, %f : f32
    linalg.yield %y : f32
  } -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

// Nothing to gain where every loop is needed.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
func.func @stays(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %e = tensor.empty() : tensor<8x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %f = math.exp %in : f32
    linalg.yield %f : f32
  } -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

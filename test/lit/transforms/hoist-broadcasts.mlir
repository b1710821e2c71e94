// exp(a[i] - b[i]) is computed once per row, not once per element.
// RUN: neptune-opt %s --hoist-broadcasts --canonicalize | filecheck %s

// CHECK-DAG: #[[ONE:.*]] = affine_map<(d0) -> (d0)>
// CHECK-DAG: #[[TWO:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @scale
// CHECK: %[[T:.*]] = linalg.generic {indexing_maps = [#[[ONE]]{{.*}} iterator_types = ["parallel"]}
// CHECK: math.exp
// CHECK: linalg.generic {indexing_maps = [#[[TWO]],
// CHECK-SAME: %[[T]]
// CHECK-NOT: math.exp
// CHECK: arith.mulf
func.func @scale(%x: tensor<16x64xf32>, %a: tensor<16xf32>, %b: tensor<16xf32>) -> tensor<16x64xf32> {
  %e = tensor.empty() : tensor<16x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, e) -> (i, e)>, affine_map<(i, e) -> (i)>,
                                        affine_map<(i, e) -> (i)>, affine_map<(i, e) -> (i, e)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %a, %b : tensor<16x64xf32>, tensor<16xf32>, tensor<16xf32>) outs(%e : tensor<16x64xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32, %unused: f32):
    %d = arith.subf %q, %r : f32
    %s = math.exp %d : f32
    %t = arith.mulf %p, %s : f32
    linalg.yield %t : f32
  } -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

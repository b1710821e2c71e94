// RUN: neptune-opt %s --spread-conditions | filecheck %s

// One condition for whole tensors becomes a tensor of conditions; a choice between numbers stays.

// CHECK-LABEL: func.func @choose
// CHECK: %[[ALL:.*]] = tensor.splat %arg0[%{{.*}}] : tensor<?x4xi1>
// CHECK: arith.select %[[ALL]], %arg1, %arg2 : tensor<?x4xi1>, tensor<?x4xf32>
// CHECK: arith.select %arg0, %arg3, %arg4 : f32
func.func @choose(%c: i1, %a: tensor<?x4xf32>, %b: tensor<?x4xf32>, %x: f32, %y: f32)
    -> (tensor<?x4xf32>, f32) {
  %t = arith.select %c, %a, %b : tensor<?x4xf32>
  %s = arith.select %c, %x, %y : f32
  return %t, %s : tensor<?x4xf32>, f32
}

// Calls of scalar functions that a package adds (test/support/lit_package) become what these are;
// functions that the module defines, and those that nobody added, stay.
// RUN: neptune-opt %s --expand-calls | filecheck %s
// RUN: neptune-opt %s --expand-calls --raise-linalg | filecheck %s --check-prefix=NEST

func.func private @lit_double(f32) -> f32
func.func private @lit_norm(f64, f64) -> f64
func.func private @nobody(f32) -> f32
func.func @own(%x: f32) -> f32 {
  return %x : f32
}

// CHECK-NOT: @lit_
// CHECK:     func.func private @nobody(f32) -> f32
// CHECK:     func.func @rows
// CHECK:       linalg.generic
// CHECK:       ^bb0(%[[A:.*]]: f32, %[[S:.*]]: f32):
// CHECK-NEXT:    %[[D:.*]] = arith.addf %[[A]], %[[A]] : f32
// CHECK-NEXT:    arith.addf %[[S]], %[[D]] : f32

// NEST:      func.func @rows
// NEST:      "neptune.reduce"
// NEST:        %[[A:.*]] = "neptune.read"
// NEST-NEXT:   arith.addf %[[A]], %[[A]] : f32
func.func @rows(%x: tensor<8x16xf32>, %init: tensor<8xf32>) -> tensor<8xf32> {
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%init : tensor<8xf32>) {
    ^bb0(%a: f32, %s: f32):
      %d = func.call @lit_double(%a) : (f32) -> f32
      %n = arith.addf %s, %d : f32
      linalg.yield %n : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK:     func.func @others(%[[X:.*]]: f32, %[[Y:.*]]: f64)
// CHECK-DAG:   %[[XX:.*]] = arith.mulf %[[Y]], %[[Y]] : f64
// CHECK:       math.sqrt %{{.*}} : f64
// CHECK:       call @nobody(%[[X]])
// CHECK:       call @own(
func.func @others(%x: f32, %y: f64) -> (f32, f64) {
  %n = func.call @lit_norm(%y, %y) : (f64, f64) -> f64
  %a = func.call @nobody(%x) : (f32) -> f32
  %b = func.call @own(%a) : (f32) -> f32
  return %b, %n : f32, f64
}

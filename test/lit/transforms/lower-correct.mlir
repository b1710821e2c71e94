// RUN: neptune-opt %s --lower-correct | filecheck %s

// A correction becomes a map that passes its first accumulator through where nothing moved.

// CHECK-LABEL: func.func @f
// CHECK-NOT: neptune.correct
// CHECK: "neptune.map"()
// CHECK-NEXT: %[[A:.*]] = "neptune.read"(%arg0)
// CHECK-NEXT: %[[OLD:.*]] = "neptune.read"(%arg1)
// CHECK-NEXT: %[[NEW:.*]] = "neptune.read"(%arg2)
// CHECK-NEXT: %[[OLDK:.*]] = "neptune.read"(%arg3)
// CHECK-NEXT: %[[NEWK:.*]] = "neptune.read"(%arg4)
// CHECK: %[[H:.*]] = arith.mulf %[[A]]
// CHECK-NEXT: %[[SAME:.*]] = arith.cmpf oeq, %[[OLD]], %[[NEW]] : f32
// CHECK-NEXT: %[[SAMEK:.*]] = arith.cmpi eq, %[[OLDK]], %[[NEWK]] : i32
// CHECK-NEXT: %[[BOTH:.*]] = arith.andi %[[SAME]], %[[SAMEK]]
// CHECK-NEXT: %[[R:.*]] = arith.select %[[BOTH]], %[[A]], %[[H]]
// CHECK-NEXT: "neptune.yield"(%[[R]])
// CHECK-NEXT: domain = array<i64: 4>, result_axes = array<i64: 0>
#id = affine_map<(i) -> (i)>
func.func @f(%l: tensor<4xf32>, %m0: tensor<4xf32>, %m1: tensor<4xf32>,
             %k0: tensor<4xi32>, %k1: tensor<4xi32>) -> tensor<4xf32> {
  %r = "neptune.correct"() ({
    %a = "neptune.read"(%l) {map = #id} : (tensor<4xf32>) -> f32
    %o = "neptune.old"(%m0) {map = #id} : (tensor<4xf32>) -> f32
    %n = "neptune.new"(%m1) {map = #id} : (tensor<4xf32>) -> f32
    %ko = "neptune.old"(%k0) {map = #id} : (tensor<4xi32>) -> i32
    %kn = "neptune.new"(%k1) {map = #id} : (tensor<4xi32>) -> i32
    %dk = arith.subi %ko, %kn : i32
    %dkf = arith.sitofp %dk : i32 to f32
    %d = arith.subf %o, %n : f32
    %s = arith.addf %d, %dkf : f32
    %e = math.exp %s : f32
    %h = arith.mulf %a, %e : f32
    "neptune.yield"(%h) : (f32) -> ()
  }) {domain = array<i64: 4>, result_axes = array<i64: 0>, form = "exponential"} : () -> tensor<4xf32>
  return %r : tensor<4xf32>
}

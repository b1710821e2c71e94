// RUN: neptune-opt %s --lift-constants | filecheck %s
// RUN: neptune-opt %s --lift-constants --lift-constants | filecheck %s

// Each data is held once, by its SHA-256, also where it has two shapes.
// CHECK: module attributes {neptune.constants = {
// CHECK-SAME: {{"?}}[[A:[0-9a-f]{64}]]{{"?}} = dense<{{[^>]*}}> : tensor<16xi8>
// CHECK-SAME: {{"?}}[[B:[0-9a-f]{64}]]{{"?}} = dense<{{[^>]*}}> : tensor<16xi8>}}

// CHECK-LABEL: func.func @weights(
// CHECK-SAME: %[[X:.*]]: tensor<2x2xf32>, %[[M:.*]]: tensor<2x2xf32>, %[[V:.*]]: tensor<4xf32>)
// CHECK-SAME: attributes {neptune.constants = ["[[D:[0-9a-f]{64}]]", "[[D]]"]}
func.func @weights(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<4xf32>) {
  %m = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %again = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %v = arith.constant dense_resource<flat> : tensor<4xf32>
  // Equal elements are a number, however they are written.
  // CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<2x2xf32>
  %ones = arith.constant dense_resource<ones> : tensor<2x2xf32>
  // CHECK: arith.addf %[[X]], %[[M]]
  %s = arith.addf %x, %m : tensor<2x2xf32>
  // CHECK: arith.mulf {{.*}}, %[[M]]
  %t = arith.mulf %s, %again : tensor<2x2xf32>
  // CHECK: arith.mulf {{.*}}, %[[ONES]]
  %u = arith.mulf %t, %ones : tensor<2x2xf32>
  // What is returned is a copy.
  // CHECK: %[[C:.*]] = linalg.copy {{.*}}ins(%[[V]] : tensor<4xf32>)
  // CHECK: return %{{.*}}, %[[C]]
  return %u, %v : tensor<2x2xf32>, tensor<4xf32>
}

// A function that another calls keeps its constants: the caller passes every argument.
// CHECK-LABEL: func.func private @called() -> tensor<2xi64>
// CHECK: arith.constant dense<[1, 2]>
func.func private @called() -> tensor<2xi64> {
  %c = arith.constant dense<[1, 2]> : tensor<2xi64>
  return %c : tensor<2xi64>
}
// CHECK-LABEL: func.func @caller(%{{.*}}: tensor<2xi64>) -> (tensor<2xi64>, tensor<2xi64>)
func.func @caller() -> (tensor<2xi64>, tensor<2xi64>) {
  %c = func.call @called() : () -> tensor<2xi64>
  %d = arith.constant dense<[3, 4]> : tensor<2xi64>
  return %c, %d : tensor<2xi64>, tensor<2xi64>
}

{-#
  dialect_resources: {
    builtin: {
      flat: "0x040000000000803F000000400000404000008040",
      ones: "0x040000000000803F0000803F0000803F0000803F"
    }
  }
#-}

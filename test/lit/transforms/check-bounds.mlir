// RUN: neptune-opt %s --check-bounds | filecheck %s

// Of a position that comes from a table: the smallest and the greatest where it is used, and the
// extent. Nothing of the program itself is left.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[T:.*]]: tensor<4xi32>) -> (tensor<i64>, tensor<i64>, tensor<i64>)
// CHECK-SAME: arg0 0
// CHECK-NOT: "neptune.map"
// CHECK: "neptune.reduce"
// CHECK: "neptune.read"(%[[T]])
// CHECK: combiner = "min"
// CHECK: "neptune.reduce"
// CHECK: combiner = "max"
// CHECK: "neptune.reduce"
// CHECK: combiner = "max"
#at = affine_map<(i, j)[s] -> (s, j)>
#i = affine_map<(i, j) -> (i)>
func.func @rows(%x: tensor<?x8xf32>, %t: tensor<4xi32>) -> tensor<4x8xf32> {
  %r = "neptune.map"() ({
    %n = "neptune.read"(%t) {map = #i} : (tensor<4xi32>) -> i32
    %p = arith.index_cast %n : i32 to index
    %v = "neptune.read"(%x, %p) {map = #at} : (tensor<?x8xf32>, index) -> f32
    "neptune.yield"(%v) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

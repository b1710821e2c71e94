// RUN: neptune-opt %s --equal-extents | filecheck %s

// Arguments 0 and 1 share rows; argument 2 has one row for every four of theirs. What is static
// needs no note.
// CHECK: func.func @f
// CHECK-SAME: neptune.equal_dims = [array<i64: 0, 0, 1, 1, 0, 1, 2, 0, 4>]
func.func @f(%x: tensor<?x8xf32>, %y: tensor<?x8xf32>, %z: tensor<?x8xf32>, %n: index)
    -> tensor<?x8xf32> {
  %s = "neptune.map"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x8xf32>) -> f32
    %c = "neptune.read"(%z) {map = affine_map<(i, j) -> (i floordiv 4, j)>} : (tensor<?x8xf32>) -> f32
    %r = arith.addf %a, %c : f32
    "neptune.yield"(%r) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808, 8>, result_axes = array<i64: 0, 1>}
    : (index) -> tensor<?x8xf32>
  %t = "neptune.map"(%n) ({
    %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x8xf32>) -> f32
    %c = "neptune.read"(%y) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x8xf32>) -> f32
    %r = arith.addf %a, %c : f32
    "neptune.yield"(%r) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808, 8>, result_axes = array<i64: 0, 1>}
    : (index) -> tensor<?x8xf32>
  return %t : tensor<?x8xf32>
}

// RUN: neptune-opt %s --equal-extents --assume-chunks | filecheck %s

// The last extents of x and w are whole chunks of 8 elements, and what must be equal to the first:
// the length of the scales, and the rows of w.
// CHECK-LABEL: func.func @scaled_product
// CHECK-SAME: neptune.multiples = [array<i64: 0, 1, 8>, array<i64: 1, 0, 8>, array<i64: 2, 0, 8>, array<i64: 2, 1, 8>]
func.func @scaled_product(%x: tensor<?x?xbf16>, %scale: tensor<?xbf16>, %w: tensor<?x?xbf16>)
    -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xbf16>
  %k = tensor.dim %x, %c1 : tensor<?x?xbf16>
  %n = tensor.dim %w, %c1 : tensor<?x?xbf16>
  %r = "neptune.reduce"(%m, %n, %k) ({
    %a = "neptune.read"(%x) {map = affine_map<(d0, d1, d2) -> (d0, d2)>} : (tensor<?x?xbf16>) -> bf16
    %s = "neptune.read"(%scale) {map = affine_map<(d0, d1, d2) -> (d2)>} : (tensor<?xbf16>) -> bf16
    %b = "neptune.read"(%w) {map = affine_map<(d0, d1, d2) -> (d2, d1)>} : (tensor<?x?xbf16>) -> bf16
    %as = arith.mulf %a, %s : bf16
    %p = arith.mulf %as, %b : bf16
    %q = arith.extf %p : bf16 to f32
    "neptune.yield"(%q) : (f32) -> ()
  }, {
  }) {combiner = "add", domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808>, identity = 0.0 : f32, result_axes = array<i64: 0, 1>} : (index, index, index) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

// Rows of known length, rows of numbers that are no floats, and arrays of one dimension stay.
// CHECK-LABEL: func.func @others
// CHECK-NOT: neptune.multiples
func.func @others(%x: tensor<?x64xf32>, %y: tensor<?x?xi32>, %z: tensor<?xf16>) -> tensor<?x64xf32> {
  return %x : tensor<?x64xf32>
}

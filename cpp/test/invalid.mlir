// What the C++ dialect rejects: kinds and numbers of operands, results, attributes; terminators.
// (The rules of meaning are checked by neptune-opt.)
func.func @no_axis(%x: tensor<4xf32>) {
  // expected-error@+1 {{'neptune.stream' op requires attribute 'axis'}}
  "neptune.stream"() ({}, {}, {}) {domain = array<i64: 4>, axis_names = ["i"], resultSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> ()
  return
}
// -----
func.func @kind_of_attribute(%x: tensor<4xf32>) {
  // expected-error@+1 {{attribute 'domain' failed to satisfy constraint: an array<i64: ...>}}
  %0 = "neptune.map"() ({}) {domain = [4], result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}
// -----
func.func @extent(%x: f32) {
  // expected-error@+1 {{operand #0 must be variadic of index, but got 'f32'}}
  %0 = "neptune.map"(%x) ({}) {domain = array<i64: 4>, result_axes = array<i64: 0>} : (f32) -> tensor<4xf32>
  return
}
// -----
func.func @regions() {
  // expected-error@+1 {{expected 2 regions}}
  %0 = "neptune.reduce"() ({}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4>, result_axes = array<i64>} : () -> tensor<f32>
  return
}
// -----
func.func @segments(%x: tensor<4xf32>) {
  %0 = "neptune.private"() ({
    // expected-error@+1 {{has 1 values, which its segment sizes}}
    "neptune.produce"(%x) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}
// -----
func.func @behind_a_terminator(%x: tensor<4xf32>) {
  %0 = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    // expected-error@+1 {{must be the last operation in the parent block}}
    "neptune.yield"(%a) : (f32) -> ()
    %b = arith.addf %a, %a : f32
  }) {domain = array<i64: 4>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}
// -----
func.func @ring(%x: tensor<4xf32>) {
  // expected-error@+1 {{operand #0 must be A ring of `slots` tiles}}
  "neptune.aref_put"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
  return
}
// -----
// expected-error@+2 {{failed to parse}}
// expected-error@+1 {{invalid kind of attribute}}
func.func private @type() -> !neptune.aref<3>

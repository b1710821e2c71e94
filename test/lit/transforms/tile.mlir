// RUN: neptune-opt %s --tile | filecheck %s
// RUN: neptune-opt %s --tile=rows=32,stream=128 | filecheck %s --check-prefix=GIVEN
// RUN: not neptune-opt %s --tile=sizes=1x2 2>&1 | filecheck %s --check-prefix=RANK
// RUN: not neptune-opt %s --tile=sizes=1y2 2>&1 | filecheck %s --check-prefix=SPELL

// RANK: error: 2 tile sizes for 3 axes
// SPELL: tile sizes are written 1x64x0, one per axis, not '1y2'

// Shared batch axis 1, rows and columns 64, a short static contraction stays whole.
// CHECK-LABEL: func.func @matmul
// CHECK: neptune.tile = array<i64: 1, 64, 64, 0>

// The last axis of a map and the one before it; an axis that is also read divided stays 1.
// CHECK-LABEL: func.func @maps
// CHECK: neptune.tile = array<i64: 1, 16, 256>
// CHECK: neptune.tile = array<i64: 1, 0>

// A size that is already there stays.
// CHECK-LABEL: func.func @kept
// CHECK: neptune.tile = array<i64: 7>

// A streamed product of rows with a whole column axis.
// CHECK-LABEL: func.func @stream
// CHECK: neptune.tile = array<i64: 64, 64, 0>
// GIVEN-LABEL: func.func @stream
// GIVEN: neptune.tile = array<i64: 32, 128, 0>

// A streamed axis that is also read divided: tiles that do not lie across multiples.
// CHECK-LABEL: func.func @divided_stream
// CHECK: neptune.tile = array<i64: 16, 3>

// Of several reduced axes each could be whole, but not all.
// CHECK-LABEL: func.func @several
// CHECK: neptune.tile = array<i64: 1, 128, 0>

// What is cut once more is cut by what divides the constant, too.
// CHECK-LABEL: func.func @several_divided
// CHECK: neptune.tile = array<i64: 1, 1, 0, 0, 0>
func.func @matmul(%x: tensor<?x?x96xf32>, %y: tensor<?x96x?xf32>, %b: index, %n: index, %m: index)
    -> tensor<?x?x?xf32> {
  %r = "neptune.reduce"(%b, %n, %m) ({
    %l = "neptune.read"(%x) {map = affine_map<(b, i, j, k) -> (b, i, k)>} : (tensor<?x?x96xf32>) -> f32
    %c = "neptune.read"(%y) {map = affine_map<(b, i, j, k) -> (b, k, j)>} : (tensor<?x96x?xf32>) -> f32
    %p = arith.mulf %l, %c : f32
    "neptune.yield"(%p) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0, 1, 2>,
          domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808, 96>}
    : (index, index, index) -> tensor<?x?x?xf32>
  return %r : tensor<?x?x?xf32>
}
func.func @maps(%x: tensor<?x?x?xf32>, %y: tensor<2x64xf32>, %a: index, %b: index, %c: index)
    -> (tensor<?x?x?xf32>, tensor<8x64xf32>) {
  %r = "neptune.map"(%a, %b, %c) ({
    %e = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, j, k)>} : (tensor<?x?x?xf32>) -> f32
    %f = math.exp %e : f32
    "neptune.yield"(%f) : (f32) -> ()
  }) {result_axes = array<i64: 0, 1, 2>,
      domain = array<i64: -9223372036854775808, -9223372036854775808, -9223372036854775808>}
    : (index, index, index) -> tensor<?x?x?xf32>
  %s = "neptune.map"() ({
    %e = "neptune.read"(%y) {map = affine_map<(i, j) -> (i floordiv 4, j)>} : (tensor<2x64xf32>) -> f32
    "neptune.yield"(%e) : (f32) -> ()
  }) {result_axes = array<i64: 0, 1>, domain = array<i64: 8, 64>} : () -> tensor<8x64xf32>
  return %r, %s : tensor<?x?x?xf32>, tensor<8x64xf32>
}
func.func @kept(%x: tensor<100xf32>) -> tensor<100xf32> {
  %r = "neptune.map"() ({
    %e = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<100xf32>) -> f32
    "neptune.yield"(%e) : (f32) -> ()
  }) {result_axes = array<i64: 0>, domain = array<i64: 100>, neptune.tile = array<i64: 7>}
    : () -> tensor<100xf32>
  return %r : tensor<100xf32>
}
func.func @stream(%x: tensor<512x?xf32>, %y: tensor<?x96xf32>, %n: index) -> tensor<512x96xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<512x96xf32>):
    %s = "neptune.accumulate"(%s0, %n) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, k, j) -> (i, k)>} : (tensor<512x?xf32>) -> f32
      %b = "neptune.read"(%y) {map = affine_map<(i, k, j) -> (k, j)>} : (tensor<?x96xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: 512, -9223372036854775808, 96>, result_axes = array<i64: 0, 2>}
      : (tensor<512x96xf32>, index) -> tensor<512x96xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<512x96xf32>) -> ()
  }, {
  ^bb0(%s: tensor<512x96xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<512x96xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "k", "j"], domain = array<i64: 512, -9223372036854775808, 96>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index) -> tensor<512x96xf32>
  return %r : tensor<512x96xf32>
}
func.func @divided_stream(%x: tensor<99x24xf32>, %y: tensor<8xf32>) -> tensor<99xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<99xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, k) -> (i, k)>} : (tensor<99x24xf32>) -> f32
      %b = "neptune.read"(%y) {map = affine_map<(i, k) -> (k floordiv 3)>} : (tensor<8xf32>) -> f32
      %p = arith.addf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1>,
            domain = array<i64: 99, 24>, result_axes = array<i64: 0>} : (tensor<99xf32>) -> tensor<99xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<99xf32>) -> ()
  }, {
  ^bb0(%s: tensor<99xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<99xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "k"], domain = array<i64: 99, 24>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<99xf32>
  return %r : tensor<99xf32>
}
func.func @several(%x: tensor<7x500x500xf32>) -> tensor<7xf32> {
  %r = "neptune.reduce"() ({
    %e = "neptune.read"(%x) {map = affine_map<(i, j, k) -> (i, j, k)>} : (tensor<7x500x500xf32>) -> f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
          domain = array<i64: 7, 500, 500>} : () -> tensor<7xf32>
  return %r : tensor<7xf32>
}
func.func @several_divided(%x: tensor<4x24x22x30x30xf32>, %m: tensor<4x8xf32>) -> tensor<4xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<4xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = affine_map<(b, j, k, l, n) -> (b, j, k, l, n)>} : (tensor<4x24x22x30x30xf32>) -> f32
      %d = "neptune.read"(%m) {map = affine_map<(b, j, k, l, n) -> (b, j floordiv 3)>} : (tensor<4x8xf32>) -> f32
      %e = arith.subf %a, %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2, 3, 4>,
            domain = array<i64: 4, 24, 22, 30, 30>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%s: tensor<4xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["b", "j", "k", "l", "n"], domain = array<i64: 4, 24, 22, 30, 30>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// RUN: neptune-opt %s --verify-corrections --split-input-file --verify-diagnostics

// A running maximum and a sum of exp(x - maximum), repaired by a * exp(old - new).

func.func @right(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  // expected-remark @+1 {{5 obligations proved}}
  %l = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    %lc = "neptune.correct"() ({
      %a = "neptune.read"(%l0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %o = "neptune.old"(%m0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %n = "neptune.new"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %d = arith.subf %o, %n : f32
      %e = math.exp %d : f32
      %r = arith.mulf %a, %e : f32
      "neptune.yield"(%r) : (f32) -> ()
    }) {domain = array<i64: 4>, result_axes = array<i64: 0>, form = "exponential",
        neptune.axes = array<i64: 0>} : () -> tensor<4xf32>
    %l1 = "neptune.accumulate"(%lc) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
      %d = arith.subf %a, %b : f32
      %e = math.exp %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m, %l1) {operandSegmentSizes =
        array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<4xf32>, tensor<4xf32>) -> ()
  }, {
  ^bb0(%m: tensor<4xf32>, %l: tensor<4xf32>):
    "neptune.produce"(%l) {operandSegmentSizes =
        array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {}) {domain = array<i64: 4, 8>, axis_names = ["i", "j"], axis = 1 : i64,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

// -----

// A planted wrong rule: the sign is turned.

func.func @wrong_sign(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %l = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @+1 {{correction not proved: r1: re-basing}}
    %lc = "neptune.correct"() ({
      %a = "neptune.read"(%l0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %o = "neptune.old"(%m0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %n = "neptune.new"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
      %d = arith.subf %n, %o : f32
      %e = math.exp %d : f32
      %r = arith.mulf %a, %e : f32
      "neptune.yield"(%r) : (f32) -> ()
    }) {domain = array<i64: 4>, result_axes = array<i64: 0>, form = "exponential",
        neptune.axes = array<i64: 0>} : () -> tensor<4xf32>
    %l1 = "neptune.accumulate"(%lc) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
      %d = arith.subf %a, %b : f32
      %e = math.exp %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m, %l1) {operandSegmentSizes =
        array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<4xf32>, tensor<4xf32>) -> ()
  }, {
  ^bb0(%m: tensor<4xf32>, %l: tensor<4xf32>):
    "neptune.produce"(%l) {operandSegmentSizes =
        array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {}) {domain = array<i64: 4, 8>, axis_names = ["i", "j"], axis = 1 : i64,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

// -----

// A sum that reads a running value and is never repaired.

func.func @missing(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %l = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @+1 {{correction not proved: r1: re-basing}}
    %l1 = "neptune.accumulate"(%l0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
      %d = arith.subf %a, %b : f32
      %e = math.exp %d : f32
      "neptune.yield"(%e) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
            result_axes = array<i64: 0>, neptune.axes = array<i64: 0, 1>}
        : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m, %l1) {operandSegmentSizes =
        array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<4xf32>, tensor<4xf32>) -> ()
  }, {
  ^bb0(%m: tensor<4xf32>, %l: tensor<4xf32>):
    "neptune.produce"(%l) {operandSegmentSizes =
        array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {}) {domain = array<i64: 4, 8>, axis_names = ["i", "j"], axis = 1 : i64,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

// What the verifiers of the nests reject (see the docstrings in neptune_mlir/dialects/neptune.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @missing_attribute(%x: tensor<4x8xf32>) {
  // expected-error@below {{'neptune.map' op needs the attribute 'result_axes'}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @wrong_kind_of_attribute(%x: tensor<4x8xf32>) {
  // expected-error@below {{attribute 'domain' must be an 'array<i64: ...>', got [4, 8]}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = [4, 8], result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @negative_extent(%x: tensor<4x8xf32>) {
  // expected-error@below {{loop 1 has the negative extent -8}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, -8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @extent_operands(%x: tensor<4x8xf32>) {
  // expected-error@below {{has 1 loops of run-time extent but 0 'extents' operands}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, -9223372036854775808>, result_axes = array<i64: 0, 1>} : () -> tensor<4x?xf32>
  return
}

// -----

func.func @result_axis_out_of_range(%x: tensor<4x8xf32>) {
  // expected-error@below {{result axis 2 is not one of the 2 loops}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 2>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @result_axis_twice(%x: tensor<4x8xf32>) {
  // expected-error@below {{result_axes [0, 0] repeat a loop}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 0>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @result_is_no_tensor(%x: tensor<4x8xf32>) {
  // expected-error@below {{the result must be a ranked tensor, got f32}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> f32
  return
}

// -----

func.func @result_shape(%x: tensor<4x8xf32>) {
  // expected-error@below {{result type tensor<8x4xf32> does not fit its loops; result_axes [0, 1] make it tensor<4x8xf32>}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<8x4xf32>
  return
}

// -----

func.func @not_a_permutation(%x: tensor<4x8xf32>) {
  // expected-error@below {{are not a permutation of the loops: loops [1] are left out}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @axes_outside_fused_op(%x: tensor<4x8xf32>) {
  // expected-error@below {{has 'neptune.axes' but stands in no fused op}}
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @body_with_arguments(%x: tensor<4x8xf32>) {
  // expected-error@below {{region 'body' takes (f32) where () is given}}
  %y = "neptune.map"() ({
    ^bb0(%b: f32):
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @body_missing(%x: tensor<4x8xf32>) {
  // expected-error@below {{region 'body' must be one block, has 0}}
  %y = "neptune.map"() ({
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @yield_of_another_type(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %w = arith.extf %a : f32 to f64
    // expected-error@below {{yields f64 where f32 is needed}}
    "neptune.yield"(%w) : (f64) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @another_terminator(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    // expected-error@below {{must end in neptune.yield}}
    "neptune.produce"(%x) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4x8xf32>) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @not_scalar_code(%x: tensor<4x8xf32>, %c: index) {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    // expected-error@below {{'tensor.dim' op is not scalar code}}
    %d = tensor.dim %x, %c : tensor<4x8xf32>
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @tensor_arithmetic(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    // expected-error@below {{computes a tensor or vector inside a nest}}
    %d = arith.negf %x : tensor<4x8xf32>
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @map_over_other_loops(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{is over 1 loops, the nest has 2}}
    %a = "neptune.read"(%x) {map = affine_map<(i) -> (i, i)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @map_of_other_rank(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{gives 1 positions, the tensor has rank 2}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @sum_of_loops(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{position 'd0 + d1' is not a loop, a loop floordiv or mod a constant, a constant, a lookup, or a sum of one of each}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, i + j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @loop_twice(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{uses loop d0 twice}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, i)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @out_of_bounds(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{'d1' reaches position 7 of dimension 0, whose extent is 4}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (j, i)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @divided_out_of_bounds(%x: tensor<4x3xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{'d1 floordiv 2' reaches position 3 of dimension 1, whose extent is 3}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j floordiv 2)>} : (tensor<4x3xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @constant_out_of_bounds(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{'8' reaches position 8 of dimension 1, whose extent is 8}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, 8)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @negative_position(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{reads at the negative position -1}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, -1)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @read_of_another_type(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{gives f16 from a tensor of f32}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f16
    %w = arith.extf %a : f16 to f32
    "neptune.yield"(%w) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @read_of_a_scalar(%x: f32) {
  %y = "neptune.map"() ({
    // expected-error@below {{the operand must be a ranked tensor, got f32}}
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> ()>} : (f32) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @read_outside(%x: tensor<4x8xf32>) {
  // expected-error@below {{'neptune.read' op stands outside a nest}}
  %a = "neptune.read"(%x) {map = affine_map<() -> (0, 0)>} : (tensor<4x8xf32>) -> f32
  return
}

// -----

func.func @old_outside_correct(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{stands outside a neptune.correct; use neptune.read}}
    %a = "neptune.old"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @index_out_of_range(%x: tensor<4x8xf32>) {
  %y = "neptune.map"() ({
    // expected-error@below {{asks for loop 2 of a nest with 2 loops}}
    %i = "neptune.index"() {dim = 2 : i64} : () -> index
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @index_outside(%x: tensor<4x8xf32>) {
  // expected-error@below {{'neptune.index' op stands outside a nest}}
  %i = "neptune.index"() {dim = 0 : i64} : () -> index
  return
}

// -----

func.func @no_reduced_loop(%x: tensor<4x8xf32>) {
  // expected-error@below {{reduces no loop; leave one out of result_axes, or use neptune.map}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @unknown_combiner(%x: tensor<4x8xf32>) {
  // expected-error@below {{combiner 'average' is unknown; known are add, mul, max, min, and, or, custom}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "average", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @wrong_identity(%x: tensor<4x8xf32>) {
  // expected-error@below {{identity of 'max' on f32 is -inf, got 0.000000e+00 : f32}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "max", identity = 0.0 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nan_identity(%x: tensor<4x8xf32>) {
  // expected-error@below {{identity of 'add' on f32 is 0.0, got 0x7FC00000 : f32}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "add", identity = 0x7FC00000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @identity_of_another_type(%x: tensor<4x8xf32>) {
  // expected-error@below {{is not of the element type f32}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "max", identity = 0xFC00 : f16, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @combiner_on_float(%x: tensor<4x8xf32>) {
  // expected-error@below {{combiner 'and' is not defined on f32}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "and", identity = 0.0 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @integer_identity(%x: tensor<4x8xi32>) {
  // expected-error@below {{identity of 'and' on i32 is -1, got 1 : i32}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xi32>) -> i32
    "neptune.yield"(%a) : (i32) -> ()
  }, {
  }) {combiner = "and", identity = 1 : i32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xi32>
  return
}

// -----

func.func @combine_region_missing(%x: tensor<4x8xf32>) {
  // expected-error@below {{has the combiner 'custom' but no 'combine' region}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "custom", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @combine_region_too_much(%x: tensor<4x8xf32>) {
  // expected-error@below {{has a 'combine' region, but its combiner is 'max'}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
^bb0(%p: f32, %q: f32):
    "neptune.yield"(%p) : (f32) -> ()
  }) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @combine_region_arguments(%x: tensor<4x8xf32>) {
  // expected-error@below {{region 'combine' takes (f32) where (f32, f32) is given}}
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
^bb0(%p: f32):
    "neptune.yield"(%p) : (f32) -> ()
  }) {combiner = "custom", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @combine_region_reads(%x: tensor<4x8xf32>) {
  %y = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
^bb0(%p: f32, %q: f32):
    // expected-error@below {{stands in a region that sees its arguments only}}
    %b = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%p) : (f32) -> ()
  }) {combiner = "custom", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @init_of_another_type(%x: tensor<4x8xf32>, %i: tensor<8xf32>) {
  // expected-error@below {{continues a running value of type tensor<8xf32> as tensor<4xf32>}}
  %y = "neptune.accumulate"(%i) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @no_init(%x: tensor<4x8xf32>) {
  // expected-error@below {{needs a running value to continue}}
  %y = "neptune.accumulate"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {
  }) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @unknown_form(%l: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf32>) {
  // expected-error@below {{form 'magic' is unknown; known are multiplicative, exponential}}
  %y = "neptune.correct"() ({
    %a = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %o = "neptune.old"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %p = "neptune.new"(%n) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "magic", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nothing_to_repair(%l: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf32>) {
  // expected-error@below {{repairs nothing: read the accumulator with neptune.read}}
  %y = "neptune.correct"() ({
    %o = "neptune.old"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %p = "neptune.new"(%n) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%o) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "additive", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @no_reference(%l: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf32>) {
  // expected-error@below {{has no reference}}
  %y = "neptune.correct"() ({
    %a = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "additive", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @unpaired_references(%l: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf32>) {
  // expected-error@below {{has 1 neptune.old and 0 neptune.new; pair them}}
  %y = "neptune.correct"() ({
    %a = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %o = "neptune.old"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "additive", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @reference_types(%l: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf16>) {
  %y = "neptune.correct"() ({
    %a = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %o = "neptune.old"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    // expected-error@below {{is f16, its neptune.old is f32}}
    %p = "neptune.new"(%n) {map = affine_map<(i) -> (i)>} : (tensor<4xf16>) -> f16
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "additive", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @accumulator_type(%l: tensor<4xf16>, %m: tensor<4xf32>, %n: tensor<4xf32>) {
  %y = "neptune.correct"() ({
    // expected-error@below {{is the value under repair, of type f16, but the result holds f32}}
    %a = "neptune.read"(%l) {map = affine_map<(i) -> (i)>} : (tensor<4xf16>) -> f16
    %o = "neptune.old"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    %p = "neptune.new"(%n) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%o) : (f32) -> ()
  }) {domain = array<i64: 4>, form = "additive", result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @lookup_of_no_read(%x: tensor<9x2xf32>, %table: tensor<4x4xi32>, %at: index) {
  %y = "neptune.map"() ({
    // expected-error@below {{has a lookup that is not an arith.index_cast of a neptune.read beside it}}
    %a = "neptune.read"(%x, %at) {map = affine_map<(b, j)[p] -> (p, j mod 2)>} : (tensor<9x2xf32>, index) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @computed_lookup(%x: tensor<9x2xf32>, %table: tensor<4x4xi32>, %at: index) {
  %y = "neptune.map"() ({
    %n = "neptune.read"(%table) {map = affine_map<(b, j) -> (b, j floordiv 2)>} : (tensor<4x4xi32>) -> i32
    %p = arith.index_cast %n : i32 to index
    %q = arith.addi %p, %p : index
    // expected-error@below {{has a lookup that is not an arith.index_cast of a neptune.read beside it}}
    %a = "neptune.read"(%x, %q) {map = affine_map<(b, j)[p] -> (p, j mod 2)>} : (tensor<9x2xf32>, index) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @symbols_without_lookups(%x: tensor<9x2xf32>, %table: tensor<4x4xi32>, %at: index) {
  %y = "neptune.map"() ({
    // expected-error@below {{has 1 symbols for 0 lookups}}
    %a = "neptune.read"(%x) {map = affine_map<(b, j)[p] -> (p, j mod 2)>} : (tensor<9x2xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @page_too_long(%x: tensor<9x2xf32>, %table: tensor<4x4xi32>, %at: index) {
  %y = "neptune.map"() ({
    %n = "neptune.read"(%table) {map = affine_map<(b, j) -> (b, j floordiv 2)>} : (tensor<4x4xi32>) -> i32
    %p = arith.index_cast %n : i32 to index
    // expected-error@below {{'d1 mod 4' reaches position 3 of dimension 1, whose extent is 2}}
    %a = "neptune.read"(%x, %p) {map = affine_map<(b, j)[p] -> (p, j mod 4)>} : (tensor<9x2xf32>, index) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

// -----

func.func @same_digit_twice(%x: tensor<9x2xf32>, %table: tensor<4x4xi32>, %at: index) {
  %y = "neptune.map"() ({
    // expected-error@below {{uses loop d1 twice}}
    %a = "neptune.read"(%x) {map = affine_map<(b, j) -> (j mod 2, j mod 2)>} : (tensor<9x2xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>
  return
}

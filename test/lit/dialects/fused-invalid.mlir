// What the verifiers of the fused ops reject (see the docstrings in neptune_mlir/dialects/neptune.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @axis_out_of_range(%x: tensor<4x8xf32>) {
  // expected-error@below {{streams axis 2 of 2}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 2 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @axis_names_count(%x: tensor<4x8xf32>) {
  // expected-error@below {{names 1 axes of 2}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @axis_names_repeat(%x: tensor<4x8xf32>) {
  // expected-error@below {{axis_names repeat a name}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "i"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @axis_names_type(%x: tensor<4x8xf32>) {
  // expected-error@below {{axis_names must be strings}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", 1], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @tile_count(%x: tensor<4x8xf32>) {
  // expected-error@below {{'neptune.tile' [1] must give one size, 0 or more, for each of 2 axes}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, neptune.tile = array<i64: 1>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @tile_negative(%x: tensor<4x8xf32>) {
  // expected-error@below {{'neptune.tile' [1, -1] must give one size, 0 or more}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, neptune.tile = array<i64: 1, -1>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @extents_missing(%x: tensor<4x8xf32>) {
  // expected-error@below {{has 1 loops of run-time extent but 0 'extents' operands}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, -9223372036854775808>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nest_without_axes(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    // expected-error@below {{needs 'neptune.axes' (the axis of each loop), because it is in a 'neptune.stream'}}
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nest_axes_count(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    // expected-error@below {{'neptune.axes' names 1 axes for 2 loops}}
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nest_axes_repeat(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    // expected-error@below {{'neptune.axes' [0, 0] repeat an axis}}
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 0>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nest_axes_range(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    // expected-error@below {{axis 2 is not one of the 2 of 'neptune.stream'}}
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 2>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @nest_axes_extent(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    // expected-error@below {{loop 0 has extent 4, but axis 1 has 8}}
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 1, 0>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @running_values_disagree(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error@below {{produces (tensor<4xf32>) where the running values are (tensor<4xf32>, tensor<4xf32>)}}
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @running_value_types(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf16>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error@below {{produces (tensor<4xf32>, tensor<4xf32>) where the running values are (tensor<4xf32>, tensor<4xf16>)}}
    "neptune.produce"(%m, %m) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @not_accumulated(%x: tensor<4x8xf32>) {
  // expected-error@below {{running value 0 is not made by a neptune.accumulate that continues argument 0 of 'body'}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m0) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @accumulates_something_else(%x: tensor<4x8xf32>, %other: tensor<4xf32>) {
  // expected-error@below {{running value 0 is not made by a neptune.accumulate that continues argument 0}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%other) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @crossed_running_values(%x: tensor<4x8xf32>) {
  // expected-error@below {{running value 0 is not made by a neptune.accumulate that continues argument 0}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>, %l0: tensor<4xf32>):
    %m = "neptune.accumulate"(%l0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m, %m) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @finish_arguments(%x: tensor<4x8xf32>) {
  // expected-error@below {{region 'finish' takes (tensor<4xf32>, tensor<4xf32>) where (tensor<4xf32>) is given}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>, %q: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @finish_results(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    // expected-error@below {{produces (tensor<4xf32>) where the results are (tensor<4xf16>)}}
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf16>
  return
}

// -----

func.func @live_arguments(%x: tensor<4x8xf32>) {
  // expected-error@below {{region 'live' takes (index) where (index, index) is given}}
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%i: index):
    %c = arith.cmpi sle, %i, %i : index
    "neptune.yield"(%c) : (i1) -> ()
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @live_result(%x: tensor<4x8xf32>) {
  %s = "neptune.stream"() ({
  ^bb0(%m0: tensor<4xf32>):
    %m = "neptune.accumulate"(%m0) ({
      %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%r: tensor<4xf32>):
    "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }, {
  ^bb0(%i: index, %j: index):
    // expected-error@below {{yields index where i1 is needed}}
    "neptune.yield"(%i) : (index) -> ()
  }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @no_chunks(%x: tensor<4x8xf32>) {
  // expected-error@below {{cuts its axis into 0 chunks}}
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 0 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @count_and_chunks(%x: tensor<4x8xf32>, %c: index) {
  // expected-error@below {{has 1 counts for 2 chunks}}
  %p = "neptune.private"(%c) ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (index) -> tensor<2x4xf32>
  return
}

// -----

func.func @private_results(%x: tensor<4x8xf32>) {
  // expected-error@below {{has results (tensor<3x4xf32>), 2 chunks of the stream's make (tensor<2x4xf32>)}}
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<3x4xf32>
  return
}

// -----

func.func @private_of_no_stream(%o: tensor<4xf32>) {
  // expected-error@below {{must hold one neptune.stream and a neptune.produce of its results, holds neptune.produce}}
  %p = "neptune.private"() ({
    "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @private_of_something_else(%x: tensor<4x8xf32>, %o: tensor<4xf32>) {
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    // expected-error@below {{must produce the results of the stream, in order}}
    "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @private_with_finish(%x: tensor<4x8xf32>, %o: tensor<4xf32>) {
  %p = "neptune.private"() ({
    // expected-error@below {{its 'finish' must give the running values as they are}}
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @global_nest_without_axes(%x: tensor<4x8xf32>) {
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  %g = "neptune.global"() ({
    // expected-error@below {{needs 'neptune.axes'}}
    %m = "neptune.reduce"() ({
      %a = "neptune.read"(%p) {map = affine_map<(c, i) -> (c, i)>} : (tensor<2x4xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 2, 4>, identity = 0xFF800000 : f32, result_axes = array<i64: 1>} : () -> tensor<4xf32>
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {axis_names = ["c", "i"], domain = array<i64: 2, 4>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
  return
}

// -----

func.func @global_results(%x: tensor<4x8xf32>) {
  %p = "neptune.private"() ({
    %s = "neptune.stream"() ({
    ^bb0(%m0: tensor<4xf32>):
      %m = "neptune.accumulate"(%m0) ({
        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 4, 8>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    ^bb0(%r: tensor<4xf32>):
      "neptune.produce"(%r) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
    }, {
    }) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 4, 8>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {chunks = 2 : i64, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x4xf32>
  %g = "neptune.global"() ({
    %m = "neptune.reduce"() ({
      %a = "neptune.read"(%p) {map = affine_map<(c, i) -> (c, i)>} : (tensor<2x4xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 2, 4>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 1>} : () -> tensor<4xf32>
    // expected-error@below {{produces (tensor<4xf32>) where the results are (tensor<4xf16>)}}
    "neptune.produce"(%m) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<4xf32>) -> ()
  }) {axis_names = ["c", "i"], domain = array<i64: 2, 4>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<4xf16>
  return
}

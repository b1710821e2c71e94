// What the verifiers of ops about warps reject (see neptune_mlir/dialects/warps.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @no_conditions(%rows: tensor<128xf32>) {
  // expected-error@below {{needs elements of i1, got f32}}
  %all = "neptune.warp_all"(%rows) : (tensor<128xf32>) -> i1
  return
}

// -----

func.func @a_tile_of_answers(%rows: tensor<128xi1>) {
  // expected-error@below {{gives an i1, not tensor<128xi1>}}
  %all = "neptune.warp_all"(%rows) : (tensor<128xi1>) -> tensor<128xi1>
  return
}

// -----

func.func @three_lanes(%part: tensor<128xf32>) {
  // expected-error@below {{needs distances that are powers of two, got 3}}
  %sum = "neptune.join_lanes"(%part) {distances = array<i64: 3>, warps = array<i64>} : (tensor<128xf32>) -> tensor<128xf32>
  return
}

// -----

func.func @other_type(%part: tensor<128xf32>) {
  // expected-error@below {{joins a tensor<128xf32> to a tensor<64xf32>}}
  %sum = "neptune.join_lanes"(%part) {distances = array<i64: 1>, warps = array<i64>} : (tensor<128xf32>) -> tensor<64xf32>
  return
}

// -----

func.func @a_fence_for_something(%part: tensor<128xf32>) {
  // expected-error@below {{takes 0 operands, got 1}}
  "neptune.issue_fence"(%part) : (tensor<128xf32>) -> ()
  return
}

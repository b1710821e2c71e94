// What the verifiers of neptune.add_slice and neptune.await_sums reject (see neptune_mlir/dialects/sums.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @right(%t: tensor<?x64xf32>, %s: tensor<?x64xf32>, %i: index) -> tensor<?x64xf32> {
  %r = "neptune.add_slice"(%t, %s, %i, %i) : (tensor<?x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// -----

func.func @other_elements(%t: tensor<?x64xf16>, %s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{adds tensor<?x64xf16> to tensor<?x64xf32>}}
  %r = "neptune.add_slice"(%t, %s, %i, %i) : (tensor<?x64xf16>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  return
}

// -----

func.func @other_rank(%t: tensor<64xf32>, %s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{adds tensor<64xf32> to tensor<?x64xf32>}}
  %r = "neptune.add_slice"(%t, %s, %i, %i) : (tensor<64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  return
}

// -----

func.func @integers(%t: tensor<?x64xi32>, %s: tensor<?x64xi32>, %i: index) {
  // expected-error@below {{adds elements of i32; they are floats}}
  %r = "neptune.add_slice"(%t, %s, %i, %i) : (tensor<?x64xi32>, tensor<?x64xi32>, index, index) -> tensor<?x64xi32>
  return
}

// -----

func.func @offsets(%t: tensor<?x64xf32>, %s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{has 1 offsets in a strip of rank 2}}
  %r = "neptune.add_slice"(%t, %s, %i) : (tensor<?x64xf32>, tensor<?x64xf32>, index) -> tensor<?x64xf32>
  return
}

// -----

func.func @result(%t: tensor<?x64xf32>, %s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{gives tensor<?x64xf32>, not tensor<?x32xf32>}}
  %r = "neptune.add_slice"(%t, %s, %i, %i) : (tensor<?x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x32xf32>
  return
}

// -----

func.func @awaited(%s: tensor<?x64xf32>, %i: index) {
  "neptune.await_sums"(%s, %i, %i, %i, %i) {size = 16 : i64, tile = 64 : i64} : (tensor<?x64xf32>, index, index, index, index) -> ()
  "neptune.await_sums"(%s, %i, %i, %i, %i) {size = 16 : i64, tile = 0 : i64} : (tensor<?x64xf32>, index, index, index, index) -> ()
  return
}

// -----

func.func @awaited_offsets(%s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{has 1 offsets in rank 2}}
  "neptune.await_sums"(%s, %i, %i, %i) {size = 16 : i64, tile = 64 : i64} : (tensor<?x64xf32>, index, index, index) -> ()
  return
}

// -----

func.func @awaited_parts(%s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{awaits 48 rows of tiles of 64}}
  "neptune.await_sums"(%s, %i, %i, %i, %i) {size = 48 : i64, tile = 64 : i64} : (tensor<?x64xf32>, index, index, index, index) -> ()
  return
}

// -----

func.func @awaited_rows(%s: tensor<?x64xf32>, %i: index) {
  // expected-error@below {{does not say how many rows}}
  "neptune.await_sums"(%s, %i, %i, %i, %i) {size = 48 : i64} : (tensor<?x64xf32>, index, index, index, index) -> ()
  return
}

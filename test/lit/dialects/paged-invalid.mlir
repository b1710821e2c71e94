// What the verifier of neptune.paged rejects (see neptune_mlir/dialects/paged.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @right(%k: tensor<?x16x8x64xf16>, %table: tensor<?x?xi32>, %n: index, %b: index) -> tensor<?x8x64xf16> {
  %v = "neptune.paged"(%k, %table, %n, %b) {dim = 0 : i64, slot = 1 : i64, column = 1 : i64, page_size = 16 : i64}
      : (tensor<?x16x8x64xf16>, tensor<?x?xi32>, index, index) -> tensor<?x8x64xf16>
  return %v : tensor<?x8x64xf16>
}

// -----

func.func @table_of_floats(%k: tensor<?x16x64xf16>, %table: tensor<?xf32>, %n: index) {
  // expected-error@below {{looks pages up in a table of f32; it holds integers}}
  %v = "neptune.paged"(%k, %table, %n) {dim = 0 : i64, slot = 1 : i64, column = 0 : i64, page_size = 16 : i64}
      : (tensor<?x16x64xf16>, tensor<?xf32>, index) -> tensor<?x64xf16>
  return
}

// -----

func.func @too_few_positions(%k: tensor<?x16x64xf16>, %table: tensor<?x?xi32>, %n: index) {
  // expected-error@below {{takes 1 positions in its table beside the column, got 0}}
  %v = "neptune.paged"(%k, %table, %n) {dim = 0 : i64, slot = 1 : i64, column = 1 : i64, page_size = 16 : i64}
      : (tensor<?x16x64xf16>, tensor<?x?xi32>, index) -> tensor<?x64xf16>
  return
}

// -----

func.func @no_dimension(%k: tensor<?x16x64xf16>, %table: tensor<?xi32>, %n: index) {
  // expected-error@below {{has no dimensions 3 and 1 in a tensor of rank 3}}
  %v = "neptune.paged"(%k, %table, %n) {dim = 3 : i64, slot = 1 : i64, column = 0 : i64, page_size = 16 : i64}
      : (tensor<?x16x64xf16>, tensor<?xi32>, index) -> tensor<?x64xf16>
  return
}

// -----

func.func @another_size(%k: tensor<?x16x64xf16>, %table: tensor<?xi32>, %n: index) {
  // expected-error@below {{page_size 32 is not the extent of dimension 1}}
  %v = "neptune.paged"(%k, %table, %n) {dim = 0 : i64, slot = 1 : i64, column = 0 : i64, page_size = 32 : i64}
      : (tensor<?x16x64xf16>, tensor<?xi32>, index) -> tensor<?x64xf16>
  return
}

// -----

func.func @another_type(%k: tensor<?x16x64xf16>, %table: tensor<?xi32>, %n: index) {
  // expected-error@below {{gives tensor<?x64xf16>, not tensor<?x16x64xf16>}}
  %v = "neptune.paged"(%k, %table, %n) {dim = 0 : i64, slot = 1 : i64, column = 0 : i64, page_size = 16 : i64}
      : (tensor<?x16x64xf16>, tensor<?xi32>, index) -> tensor<?x16x64xf16>
  return
}

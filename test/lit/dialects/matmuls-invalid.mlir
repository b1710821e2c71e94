// What the verifiers of asynchronous matmuls reject (see neptune_mlir/dialects/matmul.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @no_contraction(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{is no contraction: each of three loops runs along two operands}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @computed_index(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{the map affine_map<(d0, d1, d2) -> (d0 + 1, d2)> does not name a loop for each dimension}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i + 1, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @extents(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{loop 1 has the extents 64 and 32}}
  %t = "neptune.mma_start"(%a, %b, %small) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x32xf32>) -> !neptune.pending<tensor<64x32xf32>>
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x32xf32>>) -> tensor<64x32xf32>
  return
}

// -----

func.func @other_result(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{adds to a tensor<64x64xf32> and gives a tensor<64x32xf32>}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x32xf32>>
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x32xf32>>) -> tensor<64x32xf32>
  return
}

// -----

func.func @never_waited(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{needs exactly one use, a neptune.mma_wait in the same block}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  return
}

// -----

func.func @waited_twice(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{needs exactly one use, a neptune.mma_wait in the same block}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  %r = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @waited_in_a_branch(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  // expected-error@below {{needs exactly one use, a neptune.mma_wait in the same block}}
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  scf.if %if {
    %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  }
  return
}

// -----

func.func @runs_on(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  // expected-error@below {{lets 1 matmuls run on, but 0 start between this one and the wait}}
  %s = "neptune.mma_wait"(%t) {pending = 1 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @runs_on_if_a_branch_is_not_taken(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  scf.if %if {
    %u = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
    %r = "neptune.mma_wait"(%u) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  }
  // expected-error@below {{lets 1 matmuls run on, but 0 start between this one and the wait}}
  %s = "neptune.mma_wait"(%t) {pending = 1 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @negative(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  // expected-error@below {{lets -1 matmuls run on}}
  %s = "neptune.mma_wait"(%t) {pending = -1 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  return
}

// -----

func.func @other_tile(%a: tensor<64x16xf16>, %b: tensor<64x16xf16>, %acc: tensor<64x64xf32>, %small: tensor<64x32xf32>, %if: i1) {
  %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
  // expected-error@below {{waits for a tensor<64x64xf32> and gives a tensor<64x32xf32>}}
  %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x32xf32>
  return
}

// -----

func.func @released_too_early(%a: tensor<64x16xf16>, %acc: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<64x16xf16>, 1 : i64>
    "neptune.producer"() ({
      %p = tensor.extract_slice %a[%c0, 0] [64, 16] [1, 1] : tensor<64x16xf16> to tensor<64x16xf16>
      "neptune.aref_put"(%ring, %p) : (!neptune.aref<tensor<64x16xf16>, 1 : i64>, tensor<64x16xf16>) -> ()
    }) : () -> ()
    %b = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<64x16xf16>, 1 : i64>) -> tensor<64x16xf16>
    %t = "neptune.mma_start"(%a, %b, %acc) {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]} : (tensor<64x16xf16>, tensor<64x16xf16>, tensor<64x64xf32>) -> !neptune.pending<tensor<64x64xf32>>
    // expected-error@below {{releases a tile that a running matmul reads}}
    "neptune.aref_release"(%b) : (tensor<64x16xf16>) -> ()
    %s = "neptune.mma_wait"(%t) {pending = 0 : i64} : (!neptune.pending<tensor<64x64xf32>>) -> tensor<64x64xf32>
  }
  return
}

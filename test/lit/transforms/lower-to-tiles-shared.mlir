// A sum that programs share starts from zeros, which a kernel makes. Programs along the axis that it is
// over come last in the grid, and each adds its part of a tile to the strip that all have.
// RUN: neptune-opt %s --join-streams=joined=1 --tile --lower-to-tiles | filecheck %s
// On a GPU they add in turns where that is asked for: an op has what the tile's word is to be, this
// program's number, and behind how many rows of the sum words are. The first program of a tile stores it, so
// zeros are made from there on, where there are programs.
// RUN: sed -e '1i module attributes {neptune.chip = "sm_90a"} {' -e '$a }' %s > %t.mlir
// RUN: neptune-opt %t.mlir "--join-streams=joined=1 ordered=1" --tile --lower-to-tiles | filecheck %s --check-prefix=TURNS
// In any order, each may begin at a tile of its own: the loop's variable and that, or what is behind the end
// less the end.
// RUN: neptune-opt %t.mlir --join-streams=joined=1 --tile --set-choices=apart=1 --lower-to-tiles | filecheck %s --check-prefix=APART
// Who reads the sum waits for the programs of its rows, not for the kernel: for the first one's number at each
// tile where they take turns, else for a word that counts all.
// RUN: neptune-opt %t.mlir --join-streams=joined=1 --tile --set-choices=adder=1 --lower-to-tiles | filecheck %s --check-prefix=COUNTED
// What the function returns has its own extents: its caller has no room for whole tiles, or for words.
// RUN: sed -e 's/produce"(%%h)/produce"(%%z1)/' -e 's/%%r#1, %%u :/%%r#1, %%t :/' %t.mlir > %t.returned.mlir
// RUN: neptune-opt %t.returned.mlir --join-streams=joined=1 --tile --set-choices=adder=1 --lower-to-tiles --canonicalize | filecheck %s --check-prefix=RETURNED

// RUN: not neptune-opt %t.returned.mlir "--join-streams=joined=1 ordered=1" --tile --lower-to-tiles 2>&1 | filecheck %s --check-prefix=NOWORDS
// NOWORDS: error: programs cannot take turns: a returned sum has no room for their words

// RETURNED-LABEL: func.func @shared
// RETURNED-SAME: %[[N:[a-z0-9]+]]: index, %{{.*}}: index)
// RETURNED: %[[EMPTY:.*]] = tensor.empty(%[[N]]) : tensor<?x64xf32>
// RETURNED-NEXT: scf.forall (%{{.*}}) in (%{{.*}}) shared_outs(%{{.*}} = %[[EMPTY]])
// RETURNED: neptune.kernel = "shared_0_zeros2"
// RETURNED: %[[MADE:.*]]:3 = scf.forall
// RETURNED: "neptune.add_slice"(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}) : (
// RETURNED: return %[[MADE]]#0, %[[MADE]]#1, %[[MADE]]#2

// COUNTED-LABEL: func.func @shared
// COUNTED: scf.forall (%{{.*}}) in (%{{.*}}) shared_outs
// COUNTED: scf.forall (%{{.*}}) in (%{{.*}}) shared_outs(%{{.*}}, %{{.*}}, %{{.*}})
// COUNTED: "neptune.add_slice"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {neptune.whole}
// COUNTED: scf.forall (%[[I:.*]]) in
// COUNTED: %[[ROW:.*]] = affine.apply #{{.*}}(%[[I]])
// COUNTED: %[[LAST:.*]] = arith.select %{{.*}} : index
// COUNTED: "neptune.await_sums"(%{{.*}}#2, %[[ROW]], %{{.*}}, %[[LAST]], %{{.*}}) {size = {{.*}}, tile = 0 : i64}
// COUNTED: tensor.extract_slice %{{.*}}#2[%[[ROW]], 0]

// APART-LABEL: func.func @shared
// APART: scf.forall (%[[J:.*]]) in (%{{.*}}) shared_outs(%{{.*}}, %{{.*}}, %{{.*}})
// APART: %[[OWN:.*]] = affine.apply #{{.*}}(%[[J]])
// APART: scf.for %[[I:.*]] = {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[S:.*]] = %{{.*}})
// APART: %[[BEGIN:.*]] = affine.min
// APART: %[[AT:.*]] = affine.apply #{{.*}}(%[[I]], %[[BEGIN]])
// APART: %[[HERE:.*]] = arith.select %{{.*}}, %[[AT]], %{{.*}}
// APART: "neptune.add_slice"(%{{.*}}, %[[S]], %[[HERE]], %{{.*}}) {neptune.whole}

// TURNS-LABEL: func.func @shared
// TURNS-SAME: %[[M:[a-z0-9]+]]: index) ->
// TURNS: %[[SOME:.*]] = arith.cmpi slt, %{{.*}}, %[[M]]
// TURNS: %[[FIRST:.*]] = arith.select %[[SOME]], %{{.*}}, %{{.*}} : index
// TURNS: scf.forall (%[[R:.*]]) in
// TURNS: %[[ROW:.*]] = affine.apply #{{.*}}(%[[R]])
// TURNS: affine.apply #{{.*}}(%[[ROW]], %[[FIRST]])
// TURNS: neptune.kernel = "shared_0_zeros2"
// TURNS: scf.forall (%[[J:.*]]) in (%{{.*}}) shared_outs
// TURNS: scf.for %[[I:.*]] = {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[S:.*]] = %{{.*}})
// TURNS: "neptune.add_slice"(%{{.*}}, %[[S]], %[[I]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {neptune.whole} : (tensor<64x64xf32>, tensor<?x64xf32>, index, index, index, index, index, index)
// TURNS: "neptune.await_sums"(%{{.*}}#2, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {size = {{.*}}, tile = 64 : i64}

// CHECK-LABEL: func.func @shared
// CHECK: %[[Z:.*]] = scf.forall
// CHECK: neptune.kernel = "shared_0_zeros2"
// CHECK: scf.forall (%[[J:.*]]) in (%{{.*}}) shared_outs(%{{.*}}, %{{.*}}, %[[SUM:.*]] = %[[Z]])
// CHECK: %[[STRIP:.*]] = tensor.extract_slice %[[SUM]][0, 0]
// CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%{{.*}}, %{{.*}}, %[[S:.*]] = %{{.*}})
// CHECK: %[[NEXT:.*]] = "neptune.add_slice"(%{{.*}}, %[[S]], %[[I]], %{{.*}}) : (tensor<64x64xf32>, tensor<?x64xf32>, index, index)
// CHECK: scf.yield %{{.*}}, %{{.*}}, %[[NEXT]]
// CHECK: scf.forall.in_parallel
// CHECK: neptune.in_order = 0 : i64
func.func @shared(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>, %n: index, %m: index) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x64xf32>, %y0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%v) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%x1: tensor<?x64xf32>, %y1: tensor<?x64xf32>):
    "neptune.produce"(%x1, %y1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x64xf32>, tensor<?x64xf32>)
  %t = "neptune.stream"(%n, %m) ({
  ^bb0(%z0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %z = "neptune.accumulate"(%z0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, d) -> (j, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%z) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%z1: tensor<?x64xf32>):
    %h = "neptune.map"(%n) ({
      %a = "neptune.read"(%z1) {map = affine_map<(i, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %b = arith.addf %a, %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 3>, domain = array<i64: -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%h) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> tensor<?x64xf32>
  %u = "neptune.map"(%n) ({
    %a = "neptune.read"(%t) {map = affine_map<(i, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
    %b = arith.mulf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
  return %r#0, %r#1, %u : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}


// RUN: neptune-opt %s --prune-masks --lower-to-tiles --canonicalize --cse | filecheck %s

// A causal row sum of products over a run-time length: up to two loops, full tiles without a
// mask and then partial ones; loads of the row are outside; ragged ends are padded with 0.

// CHECK-LABEL: func.func @causal
// CHECK: %[[GRID:.*]] = affine.apply #{{.*}}()[%arg2]
// CHECK: %[[EMPTY:.*]] = tensor.empty(%arg2) : tensor<?xf32>
// CHECK: scf.forall (%[[P:.*]]) in (%[[GRID]]) shared_outs(%[[OUT:.*]] = %[[EMPTY]])
// CHECK: %[[I:.*]] = affine.apply
// CHECK: %[[NI:.*]] = affine.min
// CHECK: %[[ZERO:.*]] = linalg.fill
// CHECK: %[[FULL:.*]] = scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %c8 iter_args(%[[S:.*]] = %[[ZERO]])
// CHECK-NOT: tensor.pad %{{.*}} low[0, 0] high[0
// CHECK-NOT: linalg.index
// CHECK: linalg.generic
// CHECK: arith.mulf
// CHECK-NEXT: arith.addf
// CHECK: scf.yield
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %c8 iter_args(%{{.*}} = %[[FULL]])
// CHECK: tensor.pad
// CHECK: linalg.index
// CHECK: arith.select
// CHECK: scf.yield
// CHECK: %[[VALID:.*]] = tensor.extract_slice %{{.*}}[0] [%[[NI]]] [1] : tensor<16xf32> to tensor<?xf32>
// CHECK: tensor.parallel_insert_slice %[[VALID]] into %[[OUT]][%[[I]]] [%[[NI]]] [1]
// CHECK: neptune.kernel = "causal_0"
#ij = affine_map<(i, j) -> (i, j)>
#j = affine_map<(i, j) -> (j)>
func.func @causal(%x: tensor<?x?xf32>, %y: tensor<?xf32>, %n: index, %m: index) -> tensor<?xf32> {
  %r = "neptune.stream"(%n, %m) ({
  ^bb0(%s0: tensor<?xf32>):
    %s = "neptune.accumulate"(%s0, %n, %m) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%y) {map = #j} : (tensor<?xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      %i = "neptune.index"() {dim = 0 : i64} : () -> index
      %j = "neptune.index"() {dim = 1 : i64} : () -> index
      %c = arith.cmpi sle, %j, %i : index
      %zero = arith.constant 0.0 : f32
      %q = arith.select %c, %p, %zero : f32
      "neptune.yield"(%q) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1>,
            domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index, index) -> tensor<?xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?xf32>) -> ()
  }, {
  ^bb0(%s: tensor<?xf32>):
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: -9223372036854775808, -9223372036854775808>,
          neptune.tile = array<i64: 16, 8>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// Centred rows: the results carry the streamed axis, so a second sweep fills a strip of them.
// The mean is expensive and varies along fewer axes than the map: it has a tile of its own.

// CHECK-LABEL: func.func @centred
// CHECK: scf.forall (%[[P:.*]]) in (2) shared_outs(%[[OUT:.*]] = %{{.*}})
// CHECK: %[[SUM:.*]] = scf.for
// CHECK: %[[STRIP:.*]] = tensor.extract_slice %[[OUT]][%[[I:.*]], 0] [4, 64] [1, 1]
// CHECK: %[[MEAN:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<4xf32>)
// CHECK: arith.divf
// CHECK: %[[FILLED:.*]] = scf.for %[[J:.*]] = %c0 to %c64 step %c16 iter_args(%[[S:.*]] = %[[STRIP]])
// CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[MEAN]] :
// CHECK: arith.subf
// CHECK: %[[NEXT:.*]] = tensor.insert_slice %[[T]] into %[[S]][0, %[[J]]] [4, 16] [1, 1]
// CHECK: scf.yield %[[NEXT]]
// CHECK: tensor.parallel_insert_slice %[[FILLED]] into %[[OUT]][%[[I]], 0] [4, 64] [1, 1]
#i = affine_map<(i, j) -> (i)>
func.func @centred(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = "neptune.stream"() ({
  ^bb0(%s0: tensor<8xf32>):
    %s = "neptune.accumulate"(%s0) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<8x64xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1>,
            domain = array<i64: 8, 64>, result_axes = array<i64: 0>}
      : (tensor<8xf32>) -> tensor<8xf32>
    "neptune.produce"(%s) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<8xf32>) -> ()
  }, {
  ^bb0(%s: tensor<8xf32>):
    %c = "neptune.map"() ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<8x64xf32>) -> f32
      %b = "neptune.read"(%s) {map = #i} : (tensor<8xf32>) -> f32
      %n = arith.constant 63.0 : f32
      %m = arith.divf %b, %n : f32
      %d = arith.subf %a, %m : f32
      "neptune.yield"(%d) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: 8, 64>, result_axes = array<i64: 0, 1>}
      : () -> tensor<8x64xf32>
    "neptune.produce"(%c) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<8x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j"], domain = array<i64: 8, 64>,
          neptune.tile = array<i64: 4, 16>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<8x64xf32>
  return %r : tensor<8x64xf32>
}

// A pad at the start of what a kernel reads whole stays apart from that of its tile: no load has one.

// CHECK-LABEL: func.func @padded
// CHECK: %[[HOST:.*]] = tensor.pad %arg0 nofold low[1, 1] high[0, 0]
// CHECK: tensor.pad %[[HOST]] low[0, 0] high[0, 4]
func.func @padded(%x: tensor<11x11xf32>) -> tensor<12xf32> {
  %none = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1, 1] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %none : f32
  } : tensor<11x11xf32> to tensor<12x12xf32>
  %r = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = affine_map<(i, j) -> (i, j)>} : (tensor<12x12xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 12, 12>, result_axes = array<i64: 0>,
          neptune.tile = array<i64: 12, 16>} : () -> tensor<12xf32>
  return %r : tensor<12xf32>
}

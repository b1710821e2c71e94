// On GPUs a tile of 64 keys has rows of four pages of 16: a slice of a view whose rows are looked up.
// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile --lower-correct --lower-to-tiles --canonicalize --cse 2>/dev/null | filecheck %s

#q = affine_map<(b, j, d) -> (b, d)>
#table = affine_map<(b, j, d) -> (b, j floordiv 16)>
#pages = affine_map<(b, j, d)[page] -> (page, j mod 16, d)>
#bj = affine_map<(b, j) -> (b, j)>
#b = affine_map<(b, j) -> (b)>

// CHECK-LABEL: func.func @decode
// CHECK:         %[[PAGES:.*]] = tensor.dim %arg1
// CHECK:         scf.forall (%[[B:.*]], %{{.*}}) in (3, 8)
// CHECK:           scf.for %[[J:.*]] = {{.*}} step %c64
// CHECK:             %[[K:.*]] = "neptune.paged"(%arg1, %arg3, %[[PAGES]], %[[B]]) {column = 1 : i64, dim = 0 : i64, page_size = 16 : i64, slot = 1 : i64} : (tensor<?x16x8xf32>, tensor<3x8xi32>, index, index) -> tensor<?x8xf32>
// CHECK:             tensor.extract_slice %[[K]][%[[J]], 0] [64, 8]
// CHECK-NOT:         tensor.extract %arg3
// CHECK:             %[[V:.*]] = "neptune.paged"(%arg2,
// CHECK:             tensor.extract_slice %[[V]][%[[J]],
// CHECK:             scf.yield
module attributes {neptune.chip = "sm_90a"} {
func.func @decode(
    %q: tensor<3x8xf32>, %k: tensor<?x16x8xf32>, %v: tensor<?x16x8xf32>, %table: tensor<3x8xi32>,
    %length: tensor<3xi32>) -> tensor<3x8xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #q} : (tensor<3x8xf32>) -> f32
    %n = "neptune.read"(%table) {map = #table} : (tensor<3x8xi32>) -> i32
    %p = arith.index_cast %n : i32 to index
    %b = "neptune.read"(%k, %p) {map = #pages} : (tensor<?x16x8xf32>, index) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 3, 128, 8>,
          result_axes = array<i64: 0, 1>} : () -> tensor<3x128xf32>
  %x = "neptune.map"() ({
    %a = "neptune.read"(%s) {map = #bj} : (tensor<3x128xf32>) -> f32
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %n = "neptune.read"(%length) {map = #b} : (tensor<3xi32>) -> i32
    %l = arith.index_cast %n : i32 to index
    %c = arith.cmpi slt, %j, %l : index
    %ninf = arith.constant 0xFF800000 : f32
    %r = arith.select %c, %a, %ninf : f32
    "neptune.yield"(%r) : (f32) -> ()
  }) {domain = array<i64: 3, 128>, result_axes = array<i64: 0, 1>} : () -> tensor<3x128xf32>
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #bj} : (tensor<3x128xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 3, 128>,
          result_axes = array<i64: 0>} : () -> tensor<3xf32>
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(b, j, e) -> (b, j)>} : (tensor<3x128xf32>) -> f32
    %t = "neptune.read"(%m) {map = affine_map<(b, j, e) -> (b)>} : (tensor<3xf32>) -> f32
    %ninf = arith.constant 0xFF800000 : f32
    %empty = arith.cmpf oeq, %t, %ninf : f32
    %none = arith.constant 0.0 : f32
    %g = arith.select %empty, %none, %t : f32
    %d = arith.subf %a, %g : f32
    %w = math.exp %d : f32
    %n = "neptune.read"(%table) {map = #table} : (tensor<3x8xi32>) -> i32
    %p = arith.index_cast %n : i32 to index
    %e = "neptune.read"(%v, %p) {map = #pages} : (tensor<?x16x8xf32>, index) -> f32
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %n2 = "neptune.read"(%length) {map = affine_map<(b, j, e) -> (b)>} : (tensor<3xi32>) -> i32
    %l = arith.index_cast %n2 : i32 to index
    %c = arith.cmpi slt, %j, %l : index
    %zero = arith.constant 0.0 : f32
    %z = arith.select %c, %e, %zero : f32
    %f = arith.mulf %w, %z : f32
    "neptune.yield"(%f) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 3, 128, 8>,
          result_axes = array<i64: 0, 2>} : () -> tensor<3x8xf32>
  return %o : tensor<3x8xf32>
}
}

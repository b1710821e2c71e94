// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=rows=16,stream=32 --lower-correct --cut-rows --lower-to-tiles --canonicalize --cse | filecheck %s
// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=rows=16,stream=32 --set-choices=cut=0 --lower-correct --cut-rows --lower-to-tiles --canonicalize --cse | filecheck %s --check-prefix=WHOLE

// Rows see what is of their own part. Tiles of 16 rows begin with a part: a kernel finds where each
// does, and how many rows are its own. It loads as far as there are rows, but numbers of its own rows
// alone, and stores its own.

// CHECK-LABEL: func.func @ragged
// CHECK:       %[[CUTS:.*]]:2 = scf.forall (%{{.*}}) in (%{{.*}}) shared_outs
// CHECK:         arith.floordivsi
// CHECK:       neptune.kernel = "ragged_2_cuts", neptune.of_mask
// CHECK:       scf.forall (%[[TILE:.*]]) in (%{{.*}}) shared_outs(%[[OUT:.*]] = %{{.*}})
// CHECK-DAG:     %[[AT:.*]] = tensor.extract %[[CUTS]]#0[%[[TILE]]]
// CHECK-DAG:     %[[OWN:.*]] = tensor.extract %[[CUTS]]#1[%[[TILE]]]
// CHECK-DAG:     %[[FIRST:.*]] = arith.index_cast %[[AT]]
// CHECK-DAG:     %[[ROWS:.*]] = arith.index_cast %[[OWN]]
// CHECK:         %[[THERE:.*]] = affine.min #{{.*}}(%[[FIRST]])
// CHECK:         tensor.extract_slice %{{.*}}[%[[FIRST]]] [%[[ROWS]]] [1] : tensor<?xi32>
// CHECK:         tensor.extract_slice %{{.*}}[%[[FIRST]], %{{.*}}] [%[[THERE]], %{{.*}}]
// CHECK:         tensor.parallel_insert_slice %{{.*}} into %[[OUT]][%[[FIRST]]] [%[[ROWS]]] [1]

// WHOLE-NOT: _cuts
#map = affine_map<(d0, d1) -> (d1)>
#map1 = affine_map<(d0, d1) -> (d1 + 1)>
#map2 = affine_map<(d0, d1) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module attributes {neptune.chip = "sm_80"} {
  func.func @ragged(%arg0: tensor<?x?xf32>, %arg1: tensor<?xi32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0 : tensor<?x?xf32>
    %c1 = arith.constant 1 : index
    %dim_0 = tensor.dim %arg0, %c1 : tensor<?x?xf32>
    %c0_1 = arith.constant 0 : index
    %dim_2 = tensor.dim %arg1, %c0_1 : tensor<?xi32>
    %c1_3 = arith.constant 1 : index
    %0 = arith.subi %dim_2, %c1_3 : index
    %1 = "neptune.reduce"(%dim, %0) ({
      %5 = "neptune.index"() {dim = 0 : i64} : () -> index
      %6 = "neptune.read"(%arg1) {map = #map} : (tensor<?xi32>) -> i32
      %7 = arith.index_cast %6 : i32 to index
      %8 = arith.cmpi sge, %5, %7 : index
      %9 = "neptune.read"(%arg1) {map = #map1} : (tensor<?xi32>) -> i32
      %10 = arith.index_cast %9 : i32 to index
      %11 = arith.cmpi slt, %5, %10 : index
      %12 = arith.andi %8, %11 : i1
      %c0_i32 = arith.constant 0 : i32
      %13 = arith.select %12, %6, %c0_i32 : i32
      "neptune.yield"(%13) : (i32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, -9223372036854775808>, identity = 0 : i32, neptune.axis_names = ["t", "n"], result_axes = array<i64: 0>} : (index, index) -> tensor<?xi32>
    %2 = "neptune.reduce"(%dim, %0) ({
      %5 = "neptune.index"() {dim = 0 : i64} : () -> index
      %6 = "neptune.read"(%arg1) {map = #map} : (tensor<?xi32>) -> i32
      %7 = arith.index_cast %6 : i32 to index
      %8 = arith.cmpi sge, %5, %7 : index
      %9 = "neptune.read"(%arg1) {map = #map1} : (tensor<?xi32>) -> i32
      %10 = arith.index_cast %9 : i32 to index
      %11 = arith.cmpi slt, %5, %10 : index
      %12 = arith.andi %8, %11 : i1
      %c0_i32 = arith.constant 0 : i32
      %13 = arith.select %12, %9, %c0_i32 : i32
      "neptune.yield"(%13) : (i32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, -9223372036854775808>, identity = 0 : i32, neptune.axis_names = ["t", "n"], result_axes = array<i64: 0>} : (index, index) -> tensor<?xi32>
    %3 = "neptune.reduce"(%dim, %dim_0) ({
      %5 = "neptune.index"() {dim = 1 : i64} : () -> index
      %6 = "neptune.read"(%1) {map = #map2} : (tensor<?xi32>) -> i32
      %7 = arith.index_cast %6 : i32 to index
      %8 = arith.cmpi sge, %5, %7 : index
      %9 = "neptune.read"(%2) {map = #map2} : (tensor<?xi32>) -> i32
      %10 = arith.index_cast %9 : i32 to index
      %11 = arith.cmpi slt, %5, %10 : index
      %12 = arith.andi %8, %11 : i1
      %13 = "neptune.read"(%arg0) {map = #map3} : (tensor<?x?xf32>) -> f32
      %cst = arith.constant 0xFF800000 : f32
      %14 = arith.select %12, %13, %cst : f32
      "neptune.yield"(%14) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: -9223372036854775808, -9223372036854775808>, identity = 0xFF800000 : f32, neptune.axis_names = ["t", "j"], result_axes = array<i64: 0>} : (index, index) -> tensor<?xf32>
    %4 = "neptune.reduce"(%dim, %dim_0) ({
      %5 = "neptune.index"() {dim = 1 : i64} : () -> index
      %6 = "neptune.read"(%1) {map = #map2} : (tensor<?xi32>) -> i32
      %7 = arith.index_cast %6 : i32 to index
      %8 = arith.cmpi sge, %5, %7 : index
      %9 = "neptune.read"(%2) {map = #map2} : (tensor<?xi32>) -> i32
      %10 = arith.index_cast %9 : i32 to index
      %11 = arith.cmpi slt, %5, %10 : index
      %12 = arith.andi %8, %11 : i1
      %13 = "neptune.read"(%arg0) {map = #map3} : (tensor<?x?xf32>) -> f32
      %cst = arith.constant 0xFF800000 : f32
      %14 = arith.select %12, %13, %cst : f32
      %15 = "neptune.read"(%3) {map = #map2} : (tensor<?xf32>) -> f32
      %16 = arith.subf %14, %15 : f32
      %17 = math.exp %16 : f32
      "neptune.yield"(%17) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, -9223372036854775808>, identity = 0.000000e+00 : f32, neptune.axis_names = ["t", "j"], result_axes = array<i64: 0>} : (index, index) -> tensor<?xf32>
    return %4 : tensor<?xf32>
  }
}

// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=rows=16,stream=32 --lower-correct --skip-dead-tiles --canonicalize --cse 2>&1 | filecheck %s
// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=rows=16,stream=32 --set-choices=looks=0 --lower-correct --skip-dead-tiles --canonicalize --cse 2>&1 | filecheck %s --check-prefix=ALL

// With the choice `looks` of 0 nothing is looked at: the stream visits all tiles, with their masks.

// ALL-NOT:   tiles of 'k' are skipped
// ALL-LABEL: func.func @documents
// ALL-NOT:   scf.forall
// ALL-NOT:   neptune.global
// ALL:       "neptune.stream"
// ALL:         arith.select

// Rows see what is of their own document. Two kernels find the least and the greatest document of
// each tile, one finds which tiles may share one, and `live` bounds the stream by tiles.

// CHECK: skip-dead-tiles.mlir:[[#]]:{{[0-9]+}}: remark: tiles of 'k' are skipped where no point has (arg2[i] == arg3[k])

// CHECK-LABEL: func.func @documents
// CHECK:       %[[Q:.*]]:2 = scf.forall (%{{.*}}) in (4)
// CHECK:         tensor.extract_slice %arg3
// CHECK-SAME:      tensor<64xi32> to tensor<16xi32>
// CHECK:         arith.minsi
// CHECK:         arith.maxsi
// CHECK:       neptune.of_mask
// CHECK:       %[[K:.*]]:2 = scf.forall (%{{.*}}) in (3)
// CHECK:         tensor.extract_slice %arg4
// CHECK-SAME:      tensor<96xi32> to tensor<32xi32>
// CHECK:       neptune.of_mask
// CHECK:       %[[LIVE:.*]]:3 = "neptune.global"() ({
// CHECK:         "neptune.read"(%[[Q]]#0)
// CHECK:         "neptune.read"(%[[K]]#1)
// CHECK:         combiner = "min"
// CHECK:         combiner = "max"
// CHECK:         "neptune.map"
// CHECK:       neptune.tile = array<i64: 1, 3>
// CHECK:       "neptune.stream"
// CHECK:         "neptune.read"(%[[LIVE]]#0)
// CHECK:         arith.muli %{{.*}}, %c-32
// CHECK:         arith.cmpi sge
// CHECK:         "neptune.read"(%[[LIVE]]#1)
// CHECK:         arith.cmpi sge
// CHECK:         "neptune.read"(%[[LIVE]]#2)
// CHECK:         arith.cmpi ne
// CHECK:         "neptune.yield"
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#iej = affine_map<(i, e, j) -> (i, j)>
#je = affine_map<(i, e, j) -> (j, e)>
func.func @documents(
    %q: tensor<64x8xf32>, %k: tensor<96x8xf32>, %v: tensor<96x8xf32>, %of_q: tensor<64xi32>,
    %of_k: tensor<96xi32>) -> tensor<64x8xf32> {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #q} : (tensor<64x8xf32>) -> f32
    %b = "neptune.read"(%k) {map = #k} : (tensor<96x8xf32>) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, axis_names = ["i", "j", "d"],
          domain = array<i64: 64, 96, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<64x96xf32>
  %p = "neptune.map"() ({
    %a = "neptune.read"(%of_q) {map = #i} : (tensor<64xi32>) -> i32
    %b = "neptune.read"(%of_k) {map = #j} : (tensor<96xi32>) -> i32
    %same = arith.cmpi eq, %a, %b : i32
    %x = "neptune.read"(%s) {map = #ij} : (tensor<64x96xf32>) -> f32
    %zero = arith.constant 0.0 : f32
    %y = arith.select %same, %x, %zero : f32
    "neptune.yield"(%y) : (f32) -> ()
  }) {axis_names = ["i", "j"], domain = array<i64: 64, 96>, result_axes = array<i64: 0, 1>}
    : () -> tensor<64x96xf32>
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = #iej} : (tensor<64x96xf32>) -> f32
    %b = "neptune.read"(%v) {map = #je} : (tensor<96x8xf32>) -> f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, axis_names = ["i", "e", "j"],
          domain = array<i64: 64, 8, 96>, result_axes = array<i64: 0, 1>} : () -> tensor<64x8xf32>
  return %o : tensor<64x8xf32>
}

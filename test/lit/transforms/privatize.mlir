// RUN: neptune-opt %s --inline-maps --defer --rolling-update --privatize=chunks=4 2>&1 | filecheck %s

// RUN: neptune-opt %s --inline-maps --defer --rolling-update --tile --privatize=chunks=0,programs=64 --tile=columns=32 --lower-correct --lower-to-tiles 2>&1 | filecheck %s --check-prefix=LAUNCH

// RUN: neptune-opt %s --inline-maps --defer --rolling-update --tile --privatize=chunks=0,programs=64,each=2 --tile=columns=32 --lower-correct --lower-to-tiles 2>&1 | filecheck %s --check-prefix=DEVICE

// Two programs for each multiprocessor of the device, at a launch.
// DEVICE: %[[UNITS:.*]] = "neptune.multiprocessors"() : () -> index
// DEVICE: %[[ASKED:.*]] = affine.apply {{.*}}%[[UNITS]]
// DEVICE: %[[SHARE:.*]] = arith.divui %[[ASKED]]
// DEVICE: arith.select {{.*}}, %c1024{{.*}}, %c32
// DEVICE: %[[N:.*]] = affine.max
// DEVICE: scf.forall ({{.*}}) in (%[[N]], 2, 8,

// The number of chunks follows from the extents: 64 programs over what the other axes leave, and
// no more than there are tiles, nor than a join of 32 takes where none is longer then. A join of few
// chunks has a kernel of its own.
// LAUNCH: remark: privatized into chunks for 64 programs
// LAUNCH: %[[SHARE:.*]] = arith.divui %c64
// LAUNCH: affine.min
// LAUNCH: arith.select {{.*}}, %c1024{{.*}}, %c32
// LAUNCH: %[[N:.*]] = affine.max
// LAUNCH: scf.forall ({{.*}}) in (%[[N]], 2, 8,
// LAUNCH: tensor<?x2x8x?x64xf32>

// Each chunk keeps its own maximum, sum and output; the joining nests re-base them with the
// stream's own correction, then reduce over the chunks.

// CHECK: remark: privatized into 4 chunks

// CHECK: %[[P:.*]]:3 = "neptune.private"
// CHECK: "neptune.stream"
// CHECK: chunks = 4
// CHECK-SAME: (tensor<4x2x8x?xf32>, tensor<4x2x8x?xf32>, tensor<4x2x8x?x64xf32>)
// CHECK: %[[OUT:.*]] = "neptune.global"
// CHECK: %[[M:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[P]]#0)
// CHECK: combiner = "max"
// CHECK: %[[LC:.*]] = "neptune.correct"
// CHECK: "neptune.read"(%[[P]]#1)
// CHECK: "neptune.old"(%[[P]]#0)
// CHECK: "neptune.new"(%[[M]])
// CHECK: form = "exponential"
// CHECK: %[[L:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[LC]])
// CHECK: %[[OC:.*]] = "neptune.correct"
// CHECK: "neptune.read"(%[[P]]#2)
// CHECK: %[[O:.*]] = "neptune.reduce"
// CHECK: "neptune.read"(%[[OC]])
// CHECK: arith.divf
// CHECK: axis_names = ["chunk",
// CHECK: return %[[OUT]]
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
module {
  func.func @attn(%arg0: tensor<2x8x?x64xf32>, %arg1: tensor<2x8x?x64xf32>, %arg2: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
    %c2 = arith.constant 2 : index
    %dim = tensor.dim %arg0, %c2 : tensor<2x8x?x64xf32>
    %c2_0 = arith.constant 2 : index
    %dim_1 = tensor.dim %arg1, %c2_0 : tensor<2x8x?x64xf32>
    %0 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%arg0) {map = #map} : (tensor<2x8x?x64xf32>) -> f32
      %8 = "neptune.read"(%arg1) {map = #map1} : (tensor<2x8x?x64xf32>) -> f32
      %9 = arith.mulf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808, 64>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %1 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.index"() {dim = 3 : i64} : () -> index
      %8 = "neptune.index"() {dim = 2 : i64} : () -> index
      %9 = arith.cmpi sle, %7, %8 : index
      %10 = "neptune.read"(%0) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %cst = arith.constant 1.250000e-01 : f32
      %11 = arith.mulf %10, %cst : f32
      %cst_2 = arith.constant 0xFF800000 : f32
      %12 = arith.select %9, %11, %cst_2 : f32
      "neptune.yield"(%12) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %2 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%1) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      "neptune.yield"(%7) : (f32) -> ()
    }, {
    }) {combiner = "max", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, identity = 0xFF800000 : f32, result_axes = array<i64: 0, 1, 2>} : (index, index) -> tensor<2x8x?xf32>
    %3 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.read"(%1) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%2) {map = #map3} : (tensor<2x8x?xf32>) -> f32
      %9 = arith.subf %7, %8 : f32
      %10 = math.exp %9 : f32
      "neptune.yield"(%10) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %4 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%3) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      "neptune.yield"(%7) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2>} : (index, index) -> tensor<2x8x?xf32>
    %5 = "neptune.map"(%dim, %dim_1) ({
      %7 = "neptune.read"(%3) {map = #map2} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%4) {map = #map3} : (tensor<2x8x?xf32>) -> f32
      %9 = arith.divf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }) {domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1, 2, 3>} : (index, index) -> tensor<2x8x?x?xf32>
    %6 = "neptune.reduce"(%dim, %dim_1) ({
      %7 = "neptune.read"(%5) {map = #map4} : (tensor<2x8x?x?xf32>) -> f32
      %8 = "neptune.read"(%arg2) {map = #map1} : (tensor<2x8x?x64xf32>) -> f32
      %9 = arith.mulf %7, %8 : f32
      "neptune.yield"(%9) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 2, 8, -9223372036854775808, -9223372036854775808, 64>, identity = 0.000000e+00 : f32, result_axes = array<i64: 0, 1, 2, 4>} : (index, index) -> tensor<2x8x?x64xf32>
    return %6 : tensor<2x8x?x64xf32>
  }
}

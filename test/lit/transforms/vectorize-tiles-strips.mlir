// RUN: env NEPTUNE_CPU=x86-64-v4 neptune compile %s --target cpu --schedule streamed --knob most=2048 --emit target | filecheck %s

// Rows of which only a call knows the length go in strips: as many as half of the nearest cache
// holds, or one where that is fewer than half of the lanes. One row is folded by halves, several
// together. Who reads a row before it is written fetches the memory that is written, and who reads
// it last fetches the row of the next strip. A large result whose rows are whole lines is stored past
// the caches: memory is not fetched for it, and a fence stands behind.
// CHECK: memref.extract_aligned_pointer_as_index %arg1
// CHECK: arith.cmpi uge, %{{.*}}, %c25165824
// CHECK: %[[ROWS:.*]] = arith.divui %c4096
// CHECK: %[[MANY:.*]] = arith.cmpi uge, %[[ROWS]], %c8
// CHECK: %[[STRIP:.*]] = arith.select %[[MANY]], %[[ROWS]], %c1
// CHECK: scf.for {{.*}} step
// CHECK: scf.if %[[PAST:.*]] {
// CHECK-NEXT: } else {
// CHECK-NEXT: memref.prefetch {{.*}} write
// CHECK: vector.load
// CHECK: scf.if
// CHECK: vector.shuffle {{.*}} [8, 9, 10, 11, 12, 13, 14, 15] : vector<16xf32>
// CHECK: } else {
// CHECK: vector.shuffle {{.*}} [0, 16, 2, 18
// CHECK-NOT: write, locality
// CHECK: scf.if %[[PAST]] {
// CHECK: memref.prefetch {{.*}} read
// CHECK: vector.store {{.*}} {alignment = 64 : i64, nontemporal = true}
// CHECK: vector.store
// CHECK-NOT: nontemporal
// CHECK: scf.if %[[PAST]] {
// CHECK-NEXT: llvm.fence seq_cst
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
module {
  func.func @centre(%arg0: tensor<?x?xf32>) -> tensor<?x?xf32> {
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0 : tensor<?x?xf32>
    %c1 = arith.constant 1 : index
    %dim_0 = tensor.dim %arg0, %c1 : tensor<?x?xf32>
    %0 = "neptune.reduce"(%dim, %dim_0) ({
      %2 = "neptune.read"(%arg0) {map = #map} : (tensor<?x?xf32>) -> f32
      "neptune.yield"(%2) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, -9223372036854775808>, identity = 0.000000e+00 : f32, neptune.axis_names = ["i", "j"], result_axes = array<i64: 0>} : (index, index) -> tensor<?xf32>
    %1 = "neptune.map"(%dim, %dim_0) ({
      %2 = "neptune.read"(%arg0) {map = #map} : (tensor<?x?xf32>) -> f32
      %3 = "neptune.read"(%0) {map = #map1} : (tensor<?xf32>) -> f32
      %4 = arith.index_cast %dim_0 : index to i64
      %5 = arith.sitofp %4 : i64 to f32
      %6 = arith.divf %3, %5 : f32
      %7 = arith.subf %2, %6 : f32
      "neptune.yield"(%7) : (f32) -> ()
    }) {domain = array<i64: -9223372036854775808, -9223372036854775808>, neptune.axis_names = ["i", "j"], result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    return %1 : tensor<?x?xf32>
  }
}

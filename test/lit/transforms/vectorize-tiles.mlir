// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 --canonicalize | filecheck %s
// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=256,vector-registers=16 --canonicalize | filecheck %s --check-prefix=NARROW

// The tile lies in scratch. A whole tile is copied by loops of known length, a ragged one not.
// CHECK: func.func @scale_rows
// CHECK: memref.view %{{.*}} : memref<?xi8> to memref<{{.*}}xf32>
// CHECK: scf.if
// CHECK:   vector.load {{.*}} vector<16xf32>
// CHECK: } else {
// CHECK: vector.load {{.*}} vector<16xf32>
// CHECK: vector.broadcast %{{.*}} : f32 to vector<16xf32>
// CHECK: arith.mulf {{.*}} : vector<16xf32>
// CHECK: vector.store
// CHECK-NOT: linalg.
// CHECK-NOT: memref.alloc
// NARROW: arith.mulf {{.*}} : vector<8xf32>
func.func @f(%x: memref<?x64xf32>, %scale: f32) -> memref<?x64xf32> {
  %zero = arith.constant 0 : index
  %n = memref.dim %x, %zero : memref<?x64xf32>
  %blocks = affine.apply affine_map<()[n] -> (n ceildiv 4)>()[%n]
  %out = memref.alloc(%n) : memref<?x64xf32>
  scf.forall (%i) in (%blocks) {
    %at = affine.apply affine_map<(i) -> (i * 4)>(%i)
    %rows = affine.min affine_map<(i)[n] -> (i * -4 + n, 4)>(%i)[%n]
    %from = memref.subview %x[%at, 0] [%rows, 64] [1, 1]
      : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    %t = memref.alloc() : memref<4x64xf32>
    %part = memref.subview %t[0, 0] [%rows, 64] [1, 1]
      : memref<4x64xf32> to memref<?x64xf32, strided<[64, 1]>>
    memref.copy %from, %part
      : memref<?x64xf32, strided<[64, 1], offset: ?>> to memref<?x64xf32, strided<[64, 1]>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} outs(%t : memref<4x64xf32>) {
    ^bb0(%a: f32):
      %y = arith.mulf %a, %scale : f32
      linalg.yield %y : f32
    }
    %to = memref.subview %out[%at, 0] [%rows, 64] [1, 1]
      : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    memref.copy %part, %to
      : memref<?x64xf32, strided<[64, 1]>> to memref<?x64xf32, strided<[64, 1], offset: ?>>
  } {neptune.kernel = "scale_rows"}
  return %out : memref<?x64xf32>
}

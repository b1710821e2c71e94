// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 --canonicalize | filecheck %s

// A loop that sums and writes a tile along the ragged side. Its vectors are of rows, since a sum
// that takes away is folded by no op. The sum of that tile reads whole vectors along the side, so
// the tile is written to the end of the vector in which the side ends, though sums may end there.
// CHECK: func.func @moments
// CHECK: affine.min
// CHECK: %[[LIVE:.*]] = affine.min
// CHECK: %[[MORE:.*]] = arith.addi %[[LIVE]], %c15
// CHECK: %[[WHOLE:.*]] = arith.andi %[[MORE]], %c-16
// CHECK: %[[END:.*]] = arith.minsi %[[WHOLE]], %c64
// CHECK: scf.for %{{.*}} = %c0 to %[[END]] step %c1
// CHECK: vector.scatter
// CHECK: vector.load {{.*}} vector<16xf32>
func.func @moments_host(%x: memref<?x?xf32>) -> memref<?xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %n = memref.dim %x, %zero : memref<?x?xf32>
  %m = memref.dim %x, %one : memref<?x?xf32>
  %blocks = affine.apply affine_map<()[n] -> (n ceildiv 16)>()[%n]
  %out = memref.alloc(%n) : memref<?xf32>
  scf.forall (%i) in (%blocks) {
    %at = affine.apply affine_map<(i) -> (i * 16)>(%i)
    %rows = affine.min affine_map<(i)[n] -> (i * -16 + n, 16)>(%i)[%n]
    %live = affine.min affine_map<()[m] -> (m, 64)>()[%m]
    %from = memref.subview %x[%at, 0] [%rows, %live] [1, 1]
      : memref<?x?xf32> to memref<?x?xf32, strided<[?, 1], offset: ?>>
    %t = memref.alloc() : memref<16x64xf32>
    %u = memref.alloc() : memref<16x64xf32>
    %sum = memref.alloc() : memref<16xf32>
    %total = memref.alloc() : memref<16xf32>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} outs(%t : memref<16x64xf32>) {
    ^bb0(%a: f32):
      linalg.yield %f0 : f32
    }
    %part = memref.subview %t[0, 0] [%rows, %live] [1, 1]
      : memref<16x64xf32> to memref<?x?xf32, strided<[64, 1]>>
    memref.copy %from, %part
      : memref<?x?xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32, strided<[64, 1]>>
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        outs(%sum : memref<16xf32>) {
    ^bb0(%a: f32):
      linalg.yield %f0 : f32
    }
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "reduction"]}
        ins(%t : memref<16x64xf32>) outs(%sum, %u : memref<16xf32>, memref<16x64xf32>) {
    ^bb0(%a: f32, %acc: f32, %b: f32):
      %s = arith.subf %acc, %a : f32
      %q = arith.mulf %a, %a : f32
      linalg.yield %s, %q : f32, f32
    }
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%sum : memref<16xf32>) outs(%total : memref<16xf32>) {
    ^bb0(%a: f32, %b: f32):
      linalg.yield %a : f32
    }
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]}
        ins(%u : memref<16x64xf32>) outs(%total : memref<16xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %s = arith.addf %acc, %a : f32
      linalg.yield %s : f32
    }
    %some = memref.subview %total[0] [%rows] [1] : memref<16xf32> to memref<?xf32, strided<[1]>>
    %to = memref.subview %out[%at] [%rows] [1] : memref<?xf32> to memref<?xf32, strided<[1], offset: ?>>
    memref.copy %some, %to : memref<?xf32, strided<[1]>> to memref<?xf32, strided<[1], offset: ?>>
  } {neptune.kernel = "moments"}
  return %out : memref<?xf32>
}

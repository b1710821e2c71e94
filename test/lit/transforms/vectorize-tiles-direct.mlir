// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 --canonicalize | filecheck %s

// A tile of sums reads the array where that is contiguous (one address or the other), fetches the
// next tile early, masks what is behind the end, and folds sixteen rows together. The comparison
// with the position makes a mask of a number of lanes, not of a vector of positions.
// CHECK: func.func @sums
// CHECK: %[[UNIT:.*]] = arith.cmpi eq, %{{.*}}, %c1
// CHECK: arith.select %[[UNIT]], {{.*}} : memref<4611686018427387904xf32>
// CHECK: scf.if
// CHECK: memref.prefetch
// CHECK: vector.create_mask
// CHECK: vector.maskedload
// CHECK: vector.shuffle {{.*}} [0, 16, 2, 18
// CHECK-NOT: arith.cmpi {{.*}}vector<16xindex>
// CHECK: return
func.func @sums_host(%x: memref<?x?xf32, strided<[?, ?], offset: ?>>) -> memref<?xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %step = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %n = memref.dim %x, %zero : memref<?x?xf32, strided<[?, ?], offset: ?>>
  %m = memref.dim %x, %one : memref<?x?xf32, strided<[?, ?], offset: ?>>
  %blocks = affine.apply affine_map<()[n] -> (n ceildiv 16)>()[%n]
  %out = memref.alloc(%n) : memref<?xf32>
  scf.forall (%i) in (%blocks) {
    %at = affine.apply affine_map<(i) -> (i * 16)>(%i)
    %rows = affine.min affine_map<(i)[n] -> (i * -16 + n, 16)>(%i)[%n]
    %sum = memref.alloc() : memref<16xf32>
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        outs(%sum : memref<16xf32>) {
    ^bb0(%u: f32):
      linalg.yield %f0 : f32
    }
    scf.for %j = %zero to %m step %step {
      %live = affine.min affine_map<(j)[m] -> (m - j, 64)>(%j)[%m]
      %from = memref.subview %x[%at, %j] [%rows, %live] [1, 1]
        : memref<?x?xf32, strided<[?, ?], offset: ?>> to memref<?x?xf32, strided<[?, ?], offset: ?>>
      %t = memref.alloc() : memref<16x64xf32>
      linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]} outs(%t : memref<16x64xf32>) {
      ^bb0(%u: f32):
        linalg.yield %f0 : f32
      }
      %part = memref.subview %t[0, 0] [%rows, %live] [1, 1]
        : memref<16x64xf32> to memref<?x?xf32, strided<[64, 1]>>
      memref.copy %from, %part
        : memref<?x?xf32, strided<[?, ?], offset: ?>> to memref<?x?xf32, strided<[64, 1]>>
      linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
          iterator_types = ["parallel", "reduction"]}
          ins(%t : memref<16x64xf32>) outs(%sum : memref<16xf32>) {
      ^bb0(%a: f32, %acc: f32):
        %k = linalg.index 1 : index
        %p = arith.addi %k, %j : index
        %in = arith.cmpi slt, %p, %m : index
        %v = arith.select %in, %a, %f0 : f32
        %s = arith.addf %acc, %v : f32
        linalg.yield %s : f32
      }
    }
    %some = memref.subview %sum[0] [%rows] [1] : memref<16xf32> to memref<?xf32, strided<[1]>>
    %to = memref.subview %out[%at] [%rows] [1] : memref<?xf32> to memref<?xf32, strided<[1], offset: ?>>
    memref.copy %some, %to : memref<?xf32, strided<[1]>> to memref<?xf32, strided<[1], offset: ?>>
  } {neptune.kernel = "sums"}
  return %out : memref<?xf32>
}

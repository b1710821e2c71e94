// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 --canonicalize | filecheck %s

// A product reads a whole tile where the array has the strides of the tile's own memory, which it
// then does without; else a copy. What is left of an array is copied.
// CHECK: func.func @products
// CHECK: scf.for
// CHECK: %[[ROWS:.*]] = arith.cmpi eq, %{{.*}}, %c64
// CHECK: %[[ALIKE:.*]] = arith.andi
// CHECK: arith.select %[[ALIKE]], {{.*}} : memref<4611686018427387904xf32>
// CHECK: %[[APART:.*]] = arith.xori %[[ALIKE]]
// CHECK: scf.if %[[APART]]
// CHECK-NOT: memref.prefetch
// CHECK: vector.fma
// CHECK: return
func.func @products_host(%x: memref<?x64xf32, strided<[?, ?], offset: ?>>, %y: memref<16x64xf32>) -> memref<?x64xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %n = memref.dim %x, %zero : memref<?x64xf32, strided<[?, ?], offset: ?>>
  %blocks = affine.apply affine_map<()[n] -> (n floordiv 64)>()[%n]
  %out = memref.alloc(%blocks) : memref<?x64xf32>
  scf.forall (%i) in (%blocks) {
    %at = affine.apply affine_map<(i) -> (i * 64)>(%i)
    %a = memref.alloc() : memref<16x64xf32>
    memref.copy %y, %a : memref<16x64xf32> to memref<16x64xf32>
    %sum = memref.alloc() : memref<16x64xf32>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} outs(%sum : memref<16x64xf32>) {
    ^bb0(%u: f32):
      linalg.yield %f0 : f32
    }
    scf.for %j = %zero to %at step %step {
      %from = memref.subview %x[%j, 0] [64, 64] [1, 1]
        : memref<?x64xf32, strided<[?, ?], offset: ?>> to memref<64x64xf32, strided<[?, ?], offset: ?>>
      %b = memref.alloc() : memref<64x64xf32>
      memref.copy %from, %b : memref<64x64xf32, strided<[?, ?], offset: ?>> to memref<64x64xf32>
      linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
            affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
          iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : memref<16x64xf32>, memref<64x64xf32>) outs(%sum : memref<16x64xf32>) {
      ^bb0(%p: f32, %q: f32, %acc: f32):
        %m = arith.mulf %p, %q : f32
        %s = arith.addf %acc, %m : f32
        linalg.yield %s : f32
      }
    }
    %first = memref.subview %sum[0, 0] [1, 64] [1, 1] : memref<16x64xf32> to memref<1x64xf32, strided<[64, 1]>>
    %to = memref.subview %out[%i, 0] [1, 64] [1, 1] : memref<?x64xf32> to memref<1x64xf32, strided<[64, 1], offset: ?>>
    memref.copy %first, %to : memref<1x64xf32, strided<[64, 1]>> to memref<1x64xf32, strided<[64, 1], offset: ?>>
  } {neptune.kernel = "products"}
  return %out : memref<?x64xf32>
}

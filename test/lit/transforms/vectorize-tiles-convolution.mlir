// RUN: neptune-opt %s --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 --canonicalize | filecheck %s

// What is read at a loop plus another one has its neighbours side by side: 33 lanes are two vectors
// and a masked one, each of which adds up over the filter.
// CHECK-LABEL: func.func @convolve
// CHECK: vector.load {{.*}} vector<16xf32>
// CHECK: scf.for
// CHECK: vector.load {{.*}} vector<16xf32>
// CHECK: vector.fma {{.*}} : vector<16xf32>
// CHECK: vector.store
// CHECK: vector.maskedload
func.func @g(%x: memref<3x37xf32>, %w: memref<3x5xf32>, %out: memref<33xf32>) {
  scf.forall (%once) in (1) {
    linalg.generic {
        indexing_maps = [affine_map<(o, c, k) -> (c, o + k)>, affine_map<(o, c, k) -> (c, k)>,
                         affine_map<(o, c, k) -> (o)>],
        iterator_types = ["parallel", "reduction", "reduction"]}
        ins(%x, %w : memref<3x37xf32>, memref<3x5xf32>) outs(%out : memref<33xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %sum, %p : f32
      linalg.yield %s : f32
    }
  } {neptune.kernel = "convolve"}
  return
}

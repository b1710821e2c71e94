// RUN: neptune-opt %s --linalg-generalize-named-ops --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32,pairs=tiles | filecheck %s
// RUN: neptune-opt %s --linalg-generalize-named-ops --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32,pairs=dots | filecheck %s --check-prefix=DOTS
// RUN: neptune-opt %s --linalg-generalize-named-ops --outline-kernels --vectorize-tiles=vector-bits=512,vector-registers=32 | filecheck %s --check-prefix=PLAIN

// Factors are packed in pairs, with the least magnitude of each, and AMX multiplies 2 x 2 tiles of 16
// rows and words, in a function that all products of such tiles call. Where both magnitudes together
// are too small, the product is one of f32.
// CHECK: func.func private @[[AMX:amx_[a-z0-9_]*]]
// CHECK: llvm.call_intrinsic "llvm.x86.tilezero"
// CHECK: scf.for
// CHECK: llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK: func.func @product
// CHECK: llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK: vector.reduction <minui>
// CHECK: vector.reduction <minui>
// CHECK: scf.if
// CHECK: call @[[AMX]](
// CHECK: } else {
// CHECK: vector.fma
// CHECK: llvm.call_intrinsic "llvm.x86.tilerelease"
// DOTS-NOT: ldtilecfg
// DOTS: scf.if
// DOTS: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"
// DOTS: } else {
// DOTS: vector.fma
// PLAIN-NOT: llvm.call_intrinsic
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @f(%x: memref<64x64xbf16>, %y: memref<64x64xbf16>, %out: memref<64x64xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%n) in (1) {
    %a = memref.alloc() : memref<64x64xbf16>
    memref.copy %x, %a : memref<64x64xbf16> to memref<64x64xbf16>
    %b = memref.alloc() : memref<64x64xbf16>
    memref.copy %y, %b : memref<64x64xbf16> to memref<64x64xbf16>
    %c = memref.alloc() : memref<64x64xf32>
    linalg.fill ins(%zero : f32) outs(%c : memref<64x64xf32>)
    linalg.generic {indexing_maps = [#a, #b, #c],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : memref<64x64xbf16>, memref<64x64xbf16>) outs(%c : memref<64x64xf32>) {
    ^bb0(%p: bf16, %q: bf16, %r: f32):
      %1 = arith.extf %p : bf16 to f32
      %2 = arith.extf %q : bf16 to f32
      %3 = arith.mulf %1, %2 : f32
      %4 = arith.addf %r, %3 : f32
      linalg.yield %4 : f32
    }
    memref.copy %c, %out : memref<64x64xf32> to memref<64x64xf32>
  } {neptune.kernel = "product", mapping = [#gpu.block<linear_dim_0>]}
  return
}

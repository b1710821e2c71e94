// RUN: neptune-opt %s --math-to-gpu | filecheck %s

// exp becomes straight-line arithmetic: no device library is called.
// CHECK: gpu.func @kernel
// CHECK-NOT: math.exp
// CHECK: llvm.call_intrinsic "llvm.fma.f32"
gpu.module @kernels {
  gpu.func @kernel(%x: f32, %out: !llvm.ptr<1>) kernel {
    %e = math.exp %x : f32
    llvm.store %e, %out : f32, !llvm.ptr<1>
    gpu.return
  }
}

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

// Angles over 10^5 and quotients over 2^22 are branches of their own.
// CHECK: gpu.func @branches
// CHECK-NOT: math.
// CHECK-NOT: arith.remf
// CHECK: %[[SIZE:.*]] = llvm.call_intrinsic "llvm.fabs.f32"(%[[X:.*]]) :
// CHECK: %[[NEAR:.*]] = arith.cmpf olt, %[[SIZE]], %{{.*}} : f32
// CHECK: %[[R:.*]]:2 = scf.if %[[NEAR]] -> (f32, i32) {
// CHECK: llvm.call_intrinsic "llvm.roundeven.f32"
// CHECK: arith.fptosi
// CHECK: } else {
// CHECK: arith.muli {{.*}} : i64
// CHECK: arith.divf
// CHECK: scf.if
// CHECK: } else {
// CHECK: scf.for
// CHECK: arith.remui {{.*}} : i64
gpu.module @branching {
  gpu.func @branches(%x: f32, %y: f32, %out: !llvm.ptr<1>) kernel {
    %s = math.sin %x : f32
    %r = arith.remf %s, %y : f32
    llvm.store %r, %out : f32, !llvm.ptr<1>
    gpu.return
  }
}

// 16-bit floats are widened, and what is a few plain operations of any type becomes these.
// CHECK: gpu.func @plain
// CHECK: arith.extf
// CHECK: llvm.call_intrinsic "llvm.round.f32"
// CHECK: arith.truncf
// CHECK: arith.cmpf uno
// CHECK: arith.maxsi
// CHECK: llvm.call_intrinsic "llvm.ctlz.i32"(%{{.*}}, %{{.*}})
gpu.module @plain {
  gpu.func @plain(%x: f16, %n: i32, %out: !llvm.ptr<1>) kernel {
    %a = math.round %x : f16
    %b = math.isnan %a : f16
    %c = math.absi %n : i32
    %d = math.ctlz %c : i32
    llvm.store %b, %out : i1, !llvm.ptr<1>
    llvm.store %d, %out : i32, !llvm.ptr<1>
    gpu.return
  }
}

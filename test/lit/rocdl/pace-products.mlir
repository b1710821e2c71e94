// Loads go between the products of a stretch, and a wave that multiplies issues first; what stands
// alone, or behind a barrier on its own, stays as it is.
// RUN: neptune-opt %s --pace-products=target=gfx942 | filecheck %s
// RUN: neptune-opt %s --pace-products=target=gfx950 | filecheck %s --check-prefix=RULE
// RUN: not neptune-opt %s --pace-products=target=sm_80 2>&1 | filecheck %s --check-prefix=CHIP

// CHECK-LABEL: gpu.func @chosen
// CHECK-NOT: neptune.tuned
// CHECK: rocdl.iglp.opt 1
// CHECK-NEXT: rocdl.s.setprio 1
// CHECK-NEXT: rocdl.mfma
// CHECK-NEXT: arith.addf
// CHECK-NEXT: rocdl.mfma
// CHECK-NEXT: rocdl.s.setprio 0
// CHECK: gpu.barrier
// CHECK-NEXT: rocdl.mfma
// CHECK-NEXT: gpu.return
// CHECK-LABEL: gpu.func @by_rule
// CHECK: rocdl.iglp.opt 0
// CHECK-NEXT: rocdl.mfma
// CHECK-NOT: setprio
// CHECK-LABEL: gpu.func @one_wave
// CHECK-NOT: iglp
// RULE-LABEL: gpu.func @by_rule
// RULE-NOT: iglp
// CHIP: unknown AMD target 'sm_80'

gpu.module @kernels {
  gpu.func @chosen(%a: vector<4xf16>, %c: vector<16xf32>) kernel
      attributes {neptune.tuned = {interleave = 2 : i64, priority = 1 : i64}} {
    %0 = rocdl.mfma.f32.32x32x8f16 %a, %a, %c, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    %1 = arith.addf %c, %c : vector<16xf32>
    %2 = rocdl.mfma.f32.32x32x8f16 %a, %a, %1, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    gpu.barrier
    %3 = rocdl.mfma.f32.32x32x8f16 %a, %a, %2, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    gpu.return
  }
  gpu.func @by_rule(%a: vector<4xf16>, %c: vector<16xf32>) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %0 = rocdl.mfma.f32.32x32x8f16 %a, %a, %c, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    %1 = rocdl.mfma.f32.32x32x8f16 %a, %a, %0, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    gpu.return
  }
  gpu.func @one_wave(%a: vector<4xf16>, %c: vector<16xf32>) kernel
      attributes {known_block_size = array<i32: 64, 1, 1>} {
    %0 = rocdl.mfma.f32.32x32x8f16 %a, %a, %c, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    %1 = rocdl.mfma.f32.32x32x8f16 %a, %a, %0, 0, 0, none : (vector<4xf16>, vector<4xf16>, vector<16xf32>) -> vector<16xf32>
    gpu.return
  }
}

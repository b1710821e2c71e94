// RUN: neptune-opt %s --bf16-bits | filecheck %s

// CHECK-LABEL: llvm.func @moved
// CHECK: [[ZERO:%.*]] = llvm.mlir.constant(dense<1.000000e+00> : vector<4xbf16>) : vector<4xbf16>
// CHECK: [[BITS:%.*]] = llvm.bitcast [[ZERO]] : vector<4xbf16> to vector<4xi16>
// CHECK: llvm.getelementptr {{.*}} : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK: llvm.load {{.*}} : !llvm.ptr -> vector<4xi16>
// CHECK: llvm.shufflevector {{.*}}[[BITS]]{{.*}} : vector<4xi16>
// CHECK: llvm.store {{.*}} : vector<4xi16>, !llvm.ptr
// CHECK-NOT: bf16
llvm.func @moved(%from: !llvm.ptr, %at: i64, %number: bf16) -> bf16 {
  %one = llvm.mlir.constant(dense<1.0> : vector<4xbf16>) : vector<4xbf16>
  %p = llvm.getelementptr %from[%at] : (!llvm.ptr, i64) -> !llvm.ptr, bf16
  %a = llvm.load %p : !llvm.ptr -> vector<4xbf16>
  %b = llvm.shufflevector %a, %one [0, 4, 1, 5] : vector<4xbf16>
  llvm.store %b, %p : vector<4xbf16>, !llvm.ptr
  llvm.br ^last(%number : bf16)
^last(%found: bf16):
  llvm.return %found : bf16
}

// Other types stay as they are.
// CHECK-LABEL: llvm.func @others
// CHECK-SAME: f16
// CHECK: llvm.fadd {{.*}} : f16
llvm.func @others(%a: f16) -> f16 {
  %b = llvm.fadd %a, %a : f16
  llvm.return %b : f16
}

// What works on the sign bit alone is logic on bits, of numbers and of vectors.
// CHECK-LABEL: llvm.func @signs
// CHECK-SAME: [[A:%.*]]: i16, [[V:%.*]]: vector<4xi16>
// CHECK: [[SIZE:%.*]] = llvm.mlir.constant(32767 : i16) : i16
// CHECK: [[ABS:%.*]] = llvm.and [[A]], [[SIZE]] : i16
// CHECK: [[SIGN:%.*]] = llvm.mlir.constant(-32768 : i16) : i16
// CHECK: [[NEG:%.*]] = llvm.xor [[ABS]], [[SIGN]] : i16
// CHECK: [[W:%.*]] = llvm.insertelement [[NEG]], {{.*}} : vector<4xi16>
// CHECK: [[SIZES:%.*]] = llvm.mlir.constant(dense<32767> : vector<4xi16>) : vector<4xi16>
// CHECK: [[LEFT:%.*]] = llvm.and [[V]], [[SIZES]] : vector<4xi16>
// CHECK: [[SIGNS:%.*]] = llvm.mlir.constant(dense<-32768> : vector<4xi16>) : vector<4xi16>
// CHECK: [[RIGHT:%.*]] = llvm.and [[W]], [[SIGNS]] : vector<4xi16>
// CHECK: llvm.or [[LEFT]], [[RIGHT]] : vector<4xi16>
// CHECK-NOT: bf16
llvm.func @signs(%a: bf16, %v: vector<4xbf16>) -> vector<4xbf16> {
  %b = llvm.intr.fabs(%a) : (bf16) -> bf16
  %n = llvm.fneg %b : bf16
  %u = llvm.mlir.undef : vector<4xbf16>
  %k = llvm.mlir.constant(0 : i32) : i32
  %w = llvm.insertelement %n, %u[%k : i32] : vector<4xbf16>
  %c = llvm.intr.copysign(%v, %w) : (vector<4xbf16>, vector<4xbf16>) -> vector<4xbf16>
  llvm.return %c : vector<4xbf16>
}

// Those of other types are left to LLVM.
// CHECK-LABEL: llvm.func @other_signs
// CHECK: llvm.intr.fabs
llvm.func @other_signs(%a: f16) -> f16 {
  %b = llvm.intr.fabs(%a) : (f16) -> f16
  llvm.return %b : f16
}

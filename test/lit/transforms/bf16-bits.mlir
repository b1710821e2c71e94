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

// Upstream passes run in the order given, by name or as a pipeline, from a file or stdin.
// RUN: neptune-opt %s --canonicalize --cse | filecheck %s
// RUN: neptune-opt - -cse --pass-pipeline='builtin.module(func.func(canonicalize),cse)' < %s | filecheck %s
// RUN: neptune-opt %s --cse --canonicalize --stop-after=cse | filecheck %s --check-prefix=STOP
// RUN: neptune-opt %s --cse --canonicalize --mlir-print-ir-after-all -o /dev/null 2>&1 | filecheck %s --check-prefix=ALL
// RUN: neptune-opt --list-passes | filecheck %s --check-prefix=LIST

// CHECK-LABEL: func.func @twice
// CHECK-NEXT:    %[[SUM:.*]] = arith.addi %arg0, %arg0
// CHECK-NEXT:    return %[[SUM]], %[[SUM]]

// STOP: %[[ZERO:.*]] = arith.constant 0
// STOP: %[[SUM:.*]] = arith.addi %arg0, %arg0
// STOP-NEXT: arith.addi %[[SUM]], %[[ZERO]]

// ALL: IR Dump After CSEPass: cse
// ALL: IR Dump After CanonicalizerPass: canonicalize

// LIST: --privatize
// LIST: --rolling-update
func.func @twice(%x: i32) -> (i32, i32) {
  %zero = arith.constant 0 : i32
  %a = arith.addi %x, %x : i32
  %b = arith.addi %x, %x : i32
  %c = arith.addi %b, %zero : i32
  return %a, %c : i32, i32
}

// Options of mlir-opt, on passes of ours and of upstream in one pipeline.
// RUN: neptune-opt %s --raise-linalg --cse --mlir-print-ir-after=raise-linalg --mlir-timing -o /dev/null 2>&1 | filecheck %s --check-prefix=AFTER
// RUN: neptune-opt %s --pass-pipeline='builtin.module(func.func(canonicalize{top-down=false}),tile{rows=4},cse)' --dump-pass-pipeline --mlir-timing -o /dev/null 2>&1 | filecheck %s --check-prefix=DUMP
// RUN: neptune-opt %s --raise-linalg --emit-bytecode --verify-roundtrip | neptune-opt - --tile=rows=4 | filecheck %s --check-prefix=BYTES
// RUN: neptune-opt %s --raise-linalg --mlir-elide-elementsattrs-if-larger=2 --mlir-print-op-generic | filecheck %s --check-prefix=ELIDED

// AFTER: IR Dump After RaiseLinalg: raise-linalg
// AFTER: "neptune.reduce"
// AFTER-NOT: IR Dump After CSEPass

// DUMP: Pass Manager with 3 passes:
// DUMP-NEXT: builtin.module(func.func(canonicalize{{[{].*}}top-down=false}),tile{rows=4},cse)
// DUMP: Execution time report
// DUMP: CanonicalizerPass
// DUMP: Tile
// DUMP: CSEPass
// DUMP-NOT: Execution time report

// BYTES: "neptune.reduce"
// BYTES: neptune.tile = array<i64: 4, 0>

// ELIDED: "arith.constant"() <{value = dense_resource<__elided__> : tensor<4xf32>}>

func.func @sums(%x: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %table = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<8xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.reduce ins(%x : tensor<8x16xf32>) outs(%i : tensor<8xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %c = arith.addf %a, %b : f32
      linalg.yield %c : f32
    }
  return %s, %table : tensor<8xf32>, tensor<4xf32>
}

// A schedule is a script: any one applies, the shipped ones by name. The payload is softmax's sum.
// RUN: neptune-opt %s --schedule=streamed 2>/dev/null | filecheck %s --check-prefix=STREAMED
// RUN: neptune-opt %s --schedule=private 2>/dev/null | filecheck %s --check-prefix=PRIVATE
// RUN: neptune-opt %s --apply-schedule=file=private,knobs=chunks:4 2>/dev/null | filecheck %s --check-prefix=KNOB
// RUN: neptune-opt %s --apply-schedule=file=private,part=fixed 2>/dev/null | filecheck %s --check-prefix=FIXED
// RUN: neptune-opt %s --apply-schedule=file=private,part=fixed --apply-schedule=file=private,knobs=chunks:4,part=bound 2>/dev/null | filecheck %s --check-prefix=KNOB
// RUN: neptune-opt %s --schedule=%S/Inputs/only-softmax.mlir 2>/dev/null | filecheck %s --check-prefix=SCRIPT
// RUN: not neptune-opt %s --schedule=%S/Inputs/bad-script.mlir 2>&1 | filecheck %s --check-prefix=BAD

// STREAMED-LABEL: func.func @softmax_sum
// STREAMED: "neptune.stream"
// STREAMED: neptune.tile = array<i64: {{.*}}>
// STREAMED-LABEL: func.func @other
// STREAMED: "neptune.stream"

// PRIVATE-LABEL: func.func @softmax_sum
// PRIVATE: "neptune.private"
// PRIVATE: chunks = 8
// PRIVATE: "neptune.global"

// KNOB: chunks = 4

// What a script does before its first number:
// FIXED: "neptune.stream"
// FIXED-NOT: neptune.tile
// FIXED-NOT: "neptune.private"

// The script picks one function by name and leaves the other as it is.
// SCRIPT-LABEL: func.func @softmax_sum
// SCRIPT: "neptune.stream"
// SCRIPT-LABEL: func.func @other
// SCRIPT-NOT: "neptune.stream"
// SCRIPT: "neptune.reduce"

// BAD: bad-script.mlir:4:{{[0-9]+}}: error: a schedule step takes functions or the module, not 'arith.constant'

func.func @softmax_sum(%x: tensor<4x4096xf32>) -> tensor<4xf32> {
  %c = arith.constant 0 : index
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x4096xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 4096>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x4096xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 4096>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

func.func @other(%x: tensor<4x4096xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x4096xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 4096>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x4096xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 4096>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

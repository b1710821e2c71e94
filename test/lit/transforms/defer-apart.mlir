// What `defer` found to be wrong with a program as a whole it leaves on the reductions and on the function.
// RUN: neptune-opt %s --rolling-update 2>&1 | filecheck %s
// RUN: neptune-opt %s --defer 2>&1 | filecheck %s --check-prefix=LEFT

// A reduction that is to stay apart is not fused with what it reads; the remark says why.
// CHECK: defer-apart.mlir:{{[0-9]+}}:{{[0-9]+}}: remark: not fused: it would be off by 9 ulps
// CHECK-NOT: fused 2 reductions
// CHECK-LABEL: func.func @softmax_sum
// CHECK-NOT: neptune.stream
// CHECK: combiner = "max"
// CHECK: combiner = "add"
// LEFT-LABEL: func.func @softmax_sum
// LEFT: neptune.apart = "it would be off by 9 ulps"
func.func @softmax_sum(%x: tensor<4x32xf32>) -> tensor<4xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x32xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 32>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x32xf32>) -> f32
    %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 32>,
          result_axes = array<i64: 0>, neptune.apart = "it would be off by 9 ulps"} : () -> tensor<4xf32>
  return %l : tensor<4xf32>
}

// Chains of which a factor moved carry what the stress test said of them, by their content: who fuses
// them cannot see the program as it was any more. `rolling-update` takes the attribute off.
// LEFT-LABEL: func.func @weighted
// LEFT-SAME: neptune.tested = ["{{[0-9a-f]+}} 0 {{[0-9]+}}"]
// CHECK-LABEL: func.func @weighted
// CHECK-NOT: neptune.tested
func.func @weighted(%p: tensor<4x8xf32>, %l: tensor<4xf32>, %v: tensor<8xf32>) -> tensor<4xf32> {
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%p) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
    %b = "neptune.read"(%l) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
    %c = "neptune.read"(%v) {map = affine_map<(i, j) -> (j)>} : (tensor<8xf32>) -> f32
    %d = arith.divf %a, %b : f32
    %e = arith.mulf %d, %c : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 4, 8>,
          result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %o : tensor<4xf32>
}

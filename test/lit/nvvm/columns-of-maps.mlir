// Where columns have numbers of their own, and nothing is reduced, a thread has rows of few columns: it
// computes what a column needs once.
// RUN: neptune compile --target sm_90a --stop-after assign-layouts %s 2>/dev/null | filecheck %s
// CHECK: neptune.iteration = "reg[0:8*1] lane[0:32*8] warp[-:4]"
// CHECK: neptune.iteration = "reg[1:8*1 0:4*4] lane[1:32*8] warp[0:4*1]"
func.func @scaled(%x: tensor<4096x4096xbf16>, %v: tensor<4096xf32>) -> tensor<4096x4096xbf16> {
  %r = "neptune.map"() ({
    %a = "neptune.read"(%v) {map = affine_map<(j) -> (j)>} : (tensor<4096xf32>) -> f32
    %b = math.rsqrt %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: 4096>, result_axes = array<i64: 0>} : () -> tensor<4096xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4096x4096xbf16>) -> bf16
    %b = "neptune.read"(%r) {map = affine_map<(i, j) -> (j)>} : (tensor<4096xf32>) -> f32
    %c = arith.extf %a : bf16 to f32
    %d = arith.mulf %c, %b : f32
    %e = arith.truncf %d : f32 to bf16
    "neptune.yield"(%e) : (bf16) -> ()
  }) {domain = array<i64: 4096, 4096>, result_axes = array<i64: 0, 1>} : () -> tensor<4096x4096xbf16>
  return %y : tensor<4096x4096xbf16>
}

// A stream that a mask ends, over an argument that may lie in two arrays along it, runs backward: the
// tiles with the mask's end are first, then the whole ones from the last to the first.
// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=sizes=64x64 --lower-correct --lower-to-tiles --canonicalize --cse 2>/dev/null | filecheck %s

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

module attributes {neptune.chip = "sm_90a"} {
// CHECK-LABEL: func.func @causal
// CHECK: scf.for %
// CHECK: arith.cmpi
// CHECK: scf.yield
// CHECK: scf.for %[[J:[^ ]*]] =
// CHECK: %[[AT:[^ ]*]] = affine.apply {{.*}}(%[[J]], %{{.*}})
// CHECK: tensor.extract_slice %{{.*}}[%{{.*}}, %[[AT]]]
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
func.func @causal(%t: tensor<256x1024xf32>) -> tensor<256xf32> attributes {neptune.in_two = [array<i64: 0, 1>]} {
  %s = "neptune.map"() ({
    %i = "neptune.index"() {dim = 0 : i64} : () -> index
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %a = "neptune.read"(%t) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %live = arith.cmpi sle, %j, %i : index
    %ninf = arith.constant 0xFF800000 : f32
    %x = arith.select %live, %a, %ninf : f32
    "neptune.yield"(%x) : (f32) -> ()
  }) {domain = array<i64: 256, 1024>, result_axes = array<i64: 0, 1>} : () -> tensor<256x1024xf32>
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<256x1024xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %b = "neptune.read"(%m) {map = #i} : (tensor<256xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = math.exp %c : f32
    "neptune.yield"(%d) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  return %l : tensor<256xf32>
}
}

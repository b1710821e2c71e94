// No result of attention depends on the exact value of its running maximum; but one that gives the
// maximum back does.
// RUN: neptune-opt %s --rolling-update --free-references 2>/dev/null | filecheck %s

// CHECK-LABEL: func.func @attention
// CHECK: combiner = "max"{{.*}}neptune.free
// CHECK-NOT: neptune.free
// CHECK-LABEL: func.func @with_maximum
// CHECK-NOT: neptune.free

#nd = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#ije = affine_map<(i, j, e) -> (i, j)>
#ie = affine_map<(i, j, e) -> (i)>
#je = affine_map<(i, j, e) -> (j, e)>

func.func @attention(%q: tensor<256x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> (tensor<256x64xf16>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #nd} : (tensor<256x64xf16>) -> f16
    %b = arith.extf %a : f16 to f32
    %c = "neptune.read"(%k) {map = #jd} : (tensor<1024x64xf16>) -> f16
    %d = arith.extf %c : f16 to f32
    %e = arith.mulf %b, %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024, 64>,
          result_axes = array<i64: 0, 1>} : () -> tensor<256x1024xf32>
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
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ije} : (tensor<256x1024xf32>) -> f32
    %b = "neptune.read"(%m) {map = #ie} : (tensor<256xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = math.exp %c : f32
    %e = "neptune.read"(%v) {map = #je} : (tensor<1024x64xf16>) -> f16
    %f = arith.extf %e : f16 to f32
    %g = arith.mulf %d, %f : f32
    "neptune.yield"(%g) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024, 64>,
          result_axes = array<i64: 0, 2>} : () -> tensor<256x64xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%o) {map = #ij} : (tensor<256x64xf32>) -> f32
    %b = "neptune.read"(%l) {map = #i} : (tensor<256xf32>) -> f32
    %c = arith.divf %a, %b : f32
    %d = arith.truncf %c : f32 to f16
    "neptune.yield"(%d) : (f16) -> ()
  }) {domain = array<i64: 256, 64>, result_axes = array<i64: 0, 1>} : () -> tensor<256x64xf16>
  return %y : tensor<256x64xf16>
}

func.func @with_maximum(%q: tensor<256x64xf16>, %k: tensor<1024x64xf16>, %v: tensor<1024x64xf16>) -> (tensor<256x64xf16>, tensor<256xf32>) {
  %s = "neptune.reduce"() ({
    %a = "neptune.read"(%q) {map = #nd} : (tensor<256x64xf16>) -> f16
    %b = arith.extf %a : f16 to f32
    %c = "neptune.read"(%k) {map = #jd} : (tensor<1024x64xf16>) -> f16
    %d = arith.extf %c : f16 to f32
    %e = arith.mulf %b, %d : f32
    "neptune.yield"(%e) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024, 64>,
          result_axes = array<i64: 0, 1>} : () -> tensor<256x1024xf32>
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
  %o = "neptune.reduce"() ({
    %a = "neptune.read"(%s) {map = #ije} : (tensor<256x1024xf32>) -> f32
    %b = "neptune.read"(%m) {map = #ie} : (tensor<256xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = math.exp %c : f32
    %e = "neptune.read"(%v) {map = #je} : (tensor<1024x64xf16>) -> f16
    %f = arith.extf %e : f16 to f32
    %g = arith.mulf %d, %f : f32
    "neptune.yield"(%g) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024, 64>,
          result_axes = array<i64: 0, 2>} : () -> tensor<256x64xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%o) {map = #ij} : (tensor<256x64xf32>) -> f32
    %b = "neptune.read"(%l) {map = #i} : (tensor<256xf32>) -> f32
    %c = arith.divf %a, %b : f32
    %d = arith.truncf %c : f32 to f16
    "neptune.yield"(%d) : (f16) -> ()
  }) {domain = array<i64: 256, 64>, result_axes = array<i64: 0, 1>} : () -> tensor<256x64xf16>
  return %y, %m : tensor<256x64xf16>, tensor<256xf32>
}

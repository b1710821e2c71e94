// A log-sum-exp that is joined with another one, given: no result depends on the running maximum,
// since the log-sum-exp does not, and all else is made of that. Measured from the maximum itself
// it does.
// RUN: neptune-opt %s --rolling-update --free-references 2>/dev/null | filecheck %s

// CHECK-LABEL: func.func @joined
// CHECK: combiner = "max"{{.*}}neptune.free
// CHECK-LABEL: func.func @measured_from_the_maximum
// CHECK-NOT: neptune.free

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#row = affine_map<(i) -> (i)>

func.func @joined(%x: tensor<256x1024xf32>, %t: tensor<256xf32>) -> tensor<256xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #ij} : (tensor<256x1024xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %b = "neptune.read"(%m) {map = #i} : (tensor<256xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = math.exp %c : f32
    "neptune.yield"(%d) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%m) {map = #row} : (tensor<256xf32>) -> f32
    %b = "neptune.read"(%l) {map = #row} : (tensor<256xf32>) -> f32
    %c = "neptune.read"(%t) {map = #row} : (tensor<256xf32>) -> f32
    %inf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %d = math.log %b : f32
    %e = arith.addf %a, %d : f32
    %f = arith.maximumf %c, %e : f32
    %g = arith.subf %c, %f : f32
    %h = math.exp %g : f32
    %n = arith.subf %e, %f : f32
    %q = math.exp %n : f32
    %r = arith.cmpf oeq, %e, %inf : f32
    %o = arith.select %r, %zero, %q : f32
    %p = arith.addf %h, %o : f32
    "neptune.yield"(%p) : (f32) -> ()
  }) {domain = array<i64: 256>, result_axes = array<i64: 0>} : () -> tensor<256xf32>
  return %y : tensor<256xf32>
}

func.func @measured_from_the_maximum(%x: tensor<256x1024xf32>, %t: tensor<256xf32>) -> tensor<256xf32> {
  %m = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #ij} : (tensor<256x1024xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  %l = "neptune.reduce"() ({
    %a = "neptune.read"(%x) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %b = "neptune.read"(%m) {map = #i} : (tensor<256xf32>) -> f32
    %c = arith.subf %a, %b : f32
    %d = math.exp %c : f32
    "neptune.yield"(%d) : (f32) -> ()
  }, {}) {combiner = "add", identity = 0.0 : f32, domain = array<i64: 256, 1024>,
          result_axes = array<i64: 0>} : () -> tensor<256xf32>
  %y = "neptune.map"() ({
    %a = "neptune.read"(%m) {map = #row} : (tensor<256xf32>) -> f32
    %b = "neptune.read"(%l) {map = #row} : (tensor<256xf32>) -> f32
    %c = "neptune.read"(%t) {map = #row} : (tensor<256xf32>) -> f32
    %inf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %d = math.log %b : f32
    %e = arith.addf %a, %d : f32
    %f = arith.maximumf %c, %a : f32
    %g = arith.subf %c, %f : f32
    %h = math.exp %g : f32
    %n = arith.subf %e, %f : f32
    %q = math.exp %n : f32
    %r = arith.cmpf oeq, %e, %inf : f32
    %o = arith.select %r, %zero, %q : f32
    %p = arith.addf %h, %o : f32
    "neptune.yield"(%p) : (f32) -> ()
  }) {domain = array<i64: 256>, result_axes = array<i64: 0>} : () -> tensor<256xf32>
  return %y : tensor<256xf32>
}

// Where a stream that a mask ends begins: with its last tiles where numbers are made of positions (a
// bias that falls with the distance is largest there), and where a window also says where rows begin
// (some see nothing in the first tile). Without either, in order.
// RUN: neptune-opt %s --inline-maps --rolling-update --prune-masks --tile=sizes=64x64 --lower-correct --lower-to-tiles --canonicalize --cse 2>/dev/null | filecheck %s

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @causal
// CHECK: scf.for %
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
// CHECK: scf.for %
// CHECK: arith.cmpi
// CHECK: scf.yield
func.func @causal(%t: tensor<256x1024xf32>) -> tensor<256xf32> {
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

// CHECK-LABEL: func.func @bias
// CHECK: scf.for %
// CHECK: arith.cmpi
// CHECK: scf.yield
// CHECK: scf.for %
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
func.func @bias(%t: tensor<256x1024xf32>) -> tensor<256xf32> {
  %s = "neptune.map"() ({
    %i = "neptune.index"() {dim = 0 : i64} : () -> index
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %a = "neptune.read"(%t) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %n = arith.subi %j, %i : index
    %w = arith.index_cast %n : index to i64
    %f = arith.sitofp %w : i64 to f32
    %g = arith.addf %a, %f : f32
    %live = arith.cmpi sle, %j, %i : index
    %ninf = arith.constant 0xFF800000 : f32
    %x = arith.select %live, %g, %ninf : f32
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

// Where the end is reached, all rows have begun: one comparison is left.
// CHECK-LABEL: func.func @window
// CHECK: scf.for %
// CHECK: arith.cmpi
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
// CHECK: scf.for %
// CHECK: arith.cmpi
// CHECK: scf.yield
// CHECK: scf.for %
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
func.func @window(%t: tensor<256x1024xf32>) -> tensor<256xf32> {
  %s = "neptune.map"() ({
    %i = "neptune.index"() {dim = 0 : i64} : () -> index
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %a = "neptune.read"(%t) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %early = arith.cmpi sle, %j, %i : index
    %d = arith.subi %i, %j : index
    %c200 = arith.constant 200 : index
    %near = arith.cmpi slt, %d, %c200 : index
    %live = arith.andi %early, %near : i1
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

// CHECK-LABEL: func.func @bias_of_all
// CHECK: scf.for %
// CHECK-NOT: arith.cmpi
// CHECK: scf.yield
// CHECK-NOT: scf.for %
func.func @bias_of_all(%t: tensor<256x1024xf32>) -> tensor<256xf32> {
  %s = "neptune.map"() ({
    %i = "neptune.index"() {dim = 0 : i64} : () -> index
    %j = "neptune.index"() {dim = 1 : i64} : () -> index
    %a = "neptune.read"(%t) {map = #ij} : (tensor<256x1024xf32>) -> f32
    %n = arith.subi %j, %i : index
    %w = arith.index_cast %n : index to i64
    %f = arith.sitofp %w : i64 to f32
    %g = arith.addf %a, %f : f32
    "neptune.yield"(%g) : (f32) -> ()
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

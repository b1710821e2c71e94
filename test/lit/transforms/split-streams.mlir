// Two results of one stream: wide ones do not fit side by side in the registers of warp groups, and
// become streams of their own, each with what it needs, over the axes that are left.
// RUN: neptune-opt %s --split-streams=warp_groups=1 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.err
// RUN: neptune-opt %s --split-streams | filecheck %s --check-prefix=OFF

// CHECK-LABEL: func.func @wide
// CHECK: %[[A:.*]] = "neptune.stream"
// CHECK: ^bb0(%{{.*}}: tensor<?x256xf32>):
// CHECK-COUNT-1: "neptune.reduce"
// CHECK-NOT: "neptune.reduce"
// CHECK: domain = array<i64: -9223372036854775808, -9223372036854775808, 256, 256>
// CHECK: neptune.inner = ["s"], neptune.running = ["x"]
// CHECK-SAME: -> tensor<?x256xf32>
// CHECK: %[[B:.*]] = "neptune.stream"
// CHECK-COUNT-2: "neptune.reduce"
// CHECK: "neptune.accumulate"
// CHECK: axis_names = ["i", "j", "k", "l", "f"], domain = array<i64: -9223372036854775808, -9223372036854775808, 256, 256, 256>
// CHECK: neptune.inner = ["s", "t"], neptune.running = ["y"]
// CHECK: return %[[A]], %[[B]]

// What fits stays together.
// CHECK-LABEL: func.func @narrow
// CHECK-COUNT-1: "neptune.stream"
// CHECK-NOT: "neptune.stream"
// CHECK: return %{{.*}}#0, %{{.*}}#1

// REMARK-COUNT-1: 2 streams in place of one: its results do not fit side by side
// OFF-COUNT-2: "neptune.stream"
// OFF-NOT: "neptune.stream"
module attributes {neptune.chip = "sm_90a"} {

func.func @wide(%q: tensor<?x256xf16>, %k: tensor<?x256xf16>, %v: tensor<?x256xf16>, %d: tensor<?x256xf16>, %n: index, %m: index) -> (tensor<?x256xf32>, tensor<?x256xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x256xf32>, %y0: tensor<?x256xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x256xf16>) -> f16
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x256xf16>) -> f16
      %f = arith.extf %a : f16 to f32
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 256>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %t = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%d) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x256xf16>) -> f16
      %b = "neptune.read"(%v) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x256xf16>) -> f16
      %f = arith.extf %a : f16 to f32
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 5>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 256>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %st = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%t) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j, e) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%d) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x256xf16>) -> f16
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %a, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 256>, result_axes = array<i64: 1, 2>} : (tensor<?x256xf32>, index, index) -> tensor<?x256xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%st) {map = affine_map<(i, j, e) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x256xf16>) -> f16
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %a, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 4>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 256>, result_axes = array<i64: 1, 2>} : (tensor<?x256xf32>, index, index) -> tensor<?x256xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x256xf32>, tensor<?x256xf32>) -> ()
  }, {
  ^bb0(%x: tensor<?x256xf32>, %y: tensor<?x256xf32>):
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x256xf32>, tensor<?x256xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "k", "e", "l", "f"], domain = array<i64: -9223372036854775808, -9223372036854775808, 256, 256, 256, 256>,
          neptune.inner = ["s", "t"], neptune.running = ["x", "y"], resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x256xf32>, tensor<?x256xf32>)
  return %r#0, %r#1 : tensor<?x256xf32>, tensor<?x256xf32>
}

func.func @narrow(%q: tensor<?x64xf16>, %k: tensor<?x64xf16>, %v: tensor<?x64xf16>, %d: tensor<?x64xf16>, %n: index, %m: index) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x64xf32>, %y0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf16>) -> f16
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf16>) -> f16
      %f = arith.extf %a : f16 to f32
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %t = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%d) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf16>) -> f16
      %b = "neptune.read"(%v) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf16>) -> f16
      %f = arith.extf %a : f16 to f32
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %f, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 5>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %st = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%t) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j, e) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%d) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf16>) -> f16
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %a, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%st) {map = affine_map<(i, j, e) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf16>) -> f16
      %g = arith.extf %b : f16 to f32
      %p = arith.mulf %a, %g : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 4>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>):
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "k", "e", "l", "f"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64, 64, 64>,
          neptune.inner = ["s", "t"], neptune.running = ["x", "y"], resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x64xf32>, tensor<?x64xf32>)
  return %r#0, %r#1 : tensor<?x64xf32>, tensor<?x64xf32>
}
}

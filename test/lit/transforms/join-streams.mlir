// Two streams that compute the same products of each pair of tiles become one. The result of the
// second is a sum that programs share: an accumulation whose result has the streamed axis.
// RUN: neptune-opt %s --join-streams=joined=1 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.err
// RUN: neptune-opt %s --join-streams | filecheck %s --check-prefix=OFF
// RUN: neptune-opt %s --join-streams=joined=64 | filecheck %s --check-prefix=OFF

// CHECK-LABEL: func.func @joined
// CHECK: %[[R:.*]]:3 = "neptune.stream"
// CHECK: ^bb0(%{{.*}}: tensor<?x64xf32>, %{{.*}}: tensor<?x64xf32>, %[[Q:.*]]: tensor<?x64xf32>):
// CHECK-COUNT-1: "neptune.reduce"
// CHECK-NOT: "neptune.reduce"
// CHECK-COUNT-1: "neptune.map"
// CHECK-NOT: "neptune.map"
// CHECK-COUNT-2: "neptune.accumulate"
// CHECK: "neptune.accumulate"(%[[Q]]
// CHECK: neptune.axes = array<i64: 0, 1, 4>, result_axes = array<i64: 0, 2>
// CHECK: axis = 0 : i64, axis_names = ["i", "j", "e", "d", "d1"]
// CHECK-NOT: "neptune.stream"
// CHECK: %[[M:.*]] = "neptune.map"
// CHECK: "neptune.read"(%[[R]]#2)
// CHECK: return %[[R]]#0, %[[R]]#1, %[[M]]

// Streams with other products, and one that needs the other's result, stay.
// CHECK-LABEL: func.func @other
// CHECK-COUNT-2: "neptune.stream"
// CHECK-LABEL: func.func @needed
// CHECK-COUNT-2: "neptune.stream"

// REMARK-COUNT-1: two streams are one: programs add their parts of a result in memory
// OFF-LABEL: func.func @joined
// OFF-COUNT-2: "neptune.stream"

func.func @joined(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>, %n: index, %m: index) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x64xf32>, %y0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%v) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%x1: tensor<?x64xf32>, %y1: tensor<?x64xf32>):
    "neptune.produce"(%x1, %y1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x64xf32>, tensor<?x64xf32>)
  %t = "neptune.stream"(%n, %m) ({
  ^bb0(%z0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %z = "neptune.accumulate"(%z0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, d) -> (j, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%z) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%z1: tensor<?x64xf32>):
    %h = "neptune.map"(%n) ({
      %a = "neptune.read"(%z1) {map = affine_map<(i, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %b = arith.addf %a, %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 3>, domain = array<i64: -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%h) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> tensor<?x64xf32>
  return %r#0, %r#1, %t : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

func.func @other(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>, %n: index, %m: index) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x64xf32>, %y0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%v) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%x1: tensor<?x64xf32>, %y1: tensor<?x64xf32>):
    "neptune.produce"(%x1, %y1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x64xf32>, tensor<?x64xf32>)
  %t = "neptune.stream"(%n, %m) ({
  ^bb0(%z0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%v) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %z = "neptune.accumulate"(%z0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, d) -> (j, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%z) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%z1: tensor<?x64xf32>):
    %h = "neptune.map"(%n) ({
      %a = "neptune.read"(%z1) {map = affine_map<(i, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %b = arith.addf %a, %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 3>, domain = array<i64: -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%h) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> tensor<?x64xf32>
  return %r#0, %r#1, %t : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

func.func @needed(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x64xf32>, %n: index, %m: index) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %r:2 = "neptune.stream"(%n, %m) ({
  ^bb0(%x0: tensor<?x64xf32>, %y0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %x = "neptune.accumulate"(%x0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%v) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    %y = "neptune.accumulate"(%y0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%q) {map = affine_map<(i, j, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 1, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%x, %y) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%x1: tensor<?x64xf32>, %y1: tensor<?x64xf32>):
    "neptune.produce"(%x1, %y1) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> ()
  }, {}) {axis = 0 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> (tensor<?x64xf32>, tensor<?x64xf32>)
  %t = "neptune.stream"(%n, %m) ({
  ^bb0(%z0: tensor<?x64xf32>):
    %s = "neptune.reduce"(%n, %m) ({
      %a = "neptune.read"(%q) {map = affine_map<(i, j, e) -> (i, e)>} : (tensor<?x64xf32>) -> f32
      %b = "neptune.read"(%k) {map = affine_map<(i, j, e) -> (j, e)>} : (tensor<?x64xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "neptune.yield"(%p) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 2>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %p = "neptune.map"(%n, %m) ({
      %a = "neptune.read"(%s) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = math.exp %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 1>, domain = array<i64: -9223372036854775808, -9223372036854775808>, result_axes = array<i64: 0, 1>} : (index, index) -> tensor<?x?xf32>
    %z = "neptune.accumulate"(%z0, %n, %m) ({
      %a = "neptune.read"(%p) {map = affine_map<(i, j, d) -> (i, j)>} : (tensor<?x?xf32>) -> f32
      %b = "neptune.read"(%r#0) {map = affine_map<(i, j, d) -> (j, d)>} : (tensor<?x64xf32>) -> f32
      %c = arith.mulf %a, %b : f32
      "neptune.yield"(%c) : (f32) -> ()
    }, {}) {combiner = "add", identity = 0.0 : f32, neptune.axes = array<i64: 0, 1, 3>,
            domain = array<i64: -9223372036854775808, -9223372036854775808, 64>, result_axes = array<i64: 0, 2>} : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
    "neptune.produce"(%z) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%z1: tensor<?x64xf32>):
    %h = "neptune.map"(%n) ({
      %a = "neptune.read"(%z1) {map = affine_map<(i, d) -> (i, d)>} : (tensor<?x64xf32>) -> f32
      %b = arith.addf %a, %a : f32
      "neptune.yield"(%b) : (f32) -> ()
    }) {neptune.axes = array<i64: 0, 3>, domain = array<i64: -9223372036854775808, 64>, result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%h) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {}) {axis = 1 : i64, axis_names = ["i", "j", "e", "d"], domain = array<i64: -9223372036854775808, -9223372036854775808, 64, 64>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : (index, index) -> tensor<?x64xf32>
  return %r#0, %r#1, %t : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

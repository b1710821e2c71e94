// RUN: neptune-opt %s --final-counts --canonicalize | filecheck %s

// Behind a stream its count is the extent: a moment is re-based from sum / count to sum / extent by
// nothing. Where points are skipped it is not, and a difference that the program has stays.
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#one = affine_map<(i, j) -> ()>

// CHECK-LABEL: func.func @settled
// CHECK: ^bb0(%{{.*}}: tensor<?xf32>, %{{.*}}: tensor<f32>, %[[Q:.*]]: tensor<?xf32>):
// CHECK: "neptune.map"
// CHECK-NOT: arith.subf
// CHECK: %[[M:.*]] = "neptune.read"(%[[Q]])
// CHECK-NEXT: arith.mulf %{{.*}}, %[[M]]
func.func @settled(%x: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<?xf32>, %c0: tensor<f32>, %q0: tensor<?xf32>):
    %s = "neptune.accumulate"(%s0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    %c = "neptune.accumulate"(%c0) ({
      %one = arith.constant 1.0 : f32
      "neptune.yield"(%one) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 1>, result_axes = array<i64>} : (tensor<f32>) -> tensor<f32>
    %q = "neptune.accumulate"(%q0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %aa = arith.mulf %a, %a : f32
      "neptune.yield"(%aa) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    "neptune.produce"(%s, %c, %q) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : (tensor<?xf32>, tensor<f32>, tensor<?xf32>) -> ()
  }, {
  ^bb0(%s: tensor<?xf32>, %c: tensor<f32>, %q: tensor<?xf32>):
    %o = "neptune.map"(%n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %sum = "neptune.read"(%s) {map = #i} : (tensor<?xf32>) -> f32
      %count = "neptune.read"(%c) {map = #one} : (tensor<f32>) -> f32
      %moment = "neptune.read"(%q) {map = #i} : (tensor<?xf32>) -> f32
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %empty = arith.cmpf oeq, %count, %zero : f32
      %least = arith.select %empty, %one, %count : f32
      %near = arith.divf %sum, %least : f32
      %part = arith.constant 1.562500e-02 : f32
      %mean = arith.mulf %part, %sum : f32
      %gap = arith.subf %near, %mean : f32
      %lost = arith.mulf %count, %gap : f32
      %twice = arith.mulf %lost, %gap : f32
      %based = arith.addf %moment, %twice : f32
      %y = arith.mulf %a, %based : f32
      "neptune.yield"(%y) : (f32) -> ()
    }) {domain = array<i64: -9223372036854775808, 64>, neptune.axes = array<i64: 0, 1>,
        result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"],
      domain = array<i64: -9223372036854775808, 64>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (index) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @skipped
// CHECK: %[[GAP:.*]] = arith.subf
// CHECK-NEXT: arith.mulf %{{.*}}, %[[GAP]]
func.func @skipped(%x: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<?xf32>, %c0: tensor<f32>, %q0: tensor<?xf32>):
    %s = "neptune.accumulate"(%s0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    %c = "neptune.accumulate"(%c0) ({
      %one = arith.constant 1.0 : f32
      "neptune.yield"(%one) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 1>, result_axes = array<i64>} : (tensor<f32>) -> tensor<f32>
    %q = "neptune.accumulate"(%q0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %aa = arith.mulf %a, %a : f32
      "neptune.yield"(%aa) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    "neptune.produce"(%s, %c, %q) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : (tensor<?xf32>, tensor<f32>, tensor<?xf32>) -> ()
  }, {
  ^bb0(%s: tensor<?xf32>, %c: tensor<f32>, %q: tensor<?xf32>):
    %o = "neptune.map"(%n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %sum = "neptune.read"(%s) {map = #i} : (tensor<?xf32>) -> f32
      %count = "neptune.read"(%c) {map = #one} : (tensor<f32>) -> f32
      %moment = "neptune.read"(%q) {map = #i} : (tensor<?xf32>) -> f32
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %empty = arith.cmpf oeq, %count, %zero : f32
      %least = arith.select %empty, %one, %count : f32
      %near = arith.divf %sum, %least : f32
      %part = arith.constant 1.562500e-02 : f32
      %mean = arith.mulf %part, %sum : f32
      %gap = arith.subf %near, %mean : f32
      %lost = arith.mulf %count, %gap : f32
      %twice = arith.mulf %lost, %gap : f32
      %based = arith.addf %moment, %twice : f32
      %y = arith.mulf %a, %based : f32
      "neptune.yield"(%y) : (f32) -> ()
    }) {domain = array<i64: -9223372036854775808, 64>, neptune.axes = array<i64: 0, 1>,
        result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  ^bb0(%i: index, %j: index):
    %l = arith.cmpi ule, %j, %i : index
    "neptune.yield"(%l) : (i1) -> ()
  }) {axis = 1 : i64, axis_names = ["i", "j"],
      domain = array<i64: -9223372036854775808, 64>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (index) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @own
// CHECK: %[[GAP:.*]] = arith.subf
// CHECK-NEXT: arith.mulf %{{.*}}, %[[GAP]]
func.func @own(%x: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %r = "neptune.stream"(%n) ({
  ^bb0(%s0: tensor<?xf32>, %c0: tensor<f32>, %q0: tensor<?xf32>):
    %s = "neptune.accumulate"(%s0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      "neptune.yield"(%a) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    %c = "neptune.accumulate"(%c0) ({
      %one = arith.constant 1.0 : f32
      "neptune.yield"(%one) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 1>, result_axes = array<i64>} : (tensor<f32>) -> tensor<f32>
    %q = "neptune.accumulate"(%q0, %n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %aa = arith.mulf %a, %a : f32
      "neptune.yield"(%aa) : (f32) -> ()
    }, {
    }) {combiner = "add", domain = array<i64: -9223372036854775808, 64>, identity = 0.0 : f32,
        neptune.axes = array<i64: 0, 1>, result_axes = array<i64: 0>}
      : (tensor<?xf32>, index) -> tensor<?xf32>
    "neptune.produce"(%s, %c, %q) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
      : (tensor<?xf32>, tensor<f32>, tensor<?xf32>) -> ()
  }, {
  ^bb0(%s: tensor<?xf32>, %c: tensor<f32>, %q: tensor<?xf32>):
    %o = "neptune.map"(%n) ({
      %a = "neptune.read"(%x) {map = #ij} : (tensor<?x64xf32>) -> f32
      %sum = "neptune.read"(%s) {map = #i} : (tensor<?xf32>) -> f32
      %count = "neptune.read"(%c) {map = #one} : (tensor<f32>) -> f32
      %moment = "neptune.read"(%q) {map = #i} : (tensor<?xf32>) -> f32
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %empty = arith.cmpf oeq, %count, %zero : f32
      %least = arith.select %empty, %one, %count : f32
      %mean = arith.divf %sum, %least : f32
      %gap = arith.subf %mean, %mean : f32
      %lost = arith.mulf %count, %gap : f32
      %twice = arith.mulf %lost, %gap : f32
      %based = arith.addf %moment, %twice : f32
      %y = arith.mulf %a, %based : f32
      "neptune.yield"(%y) : (f32) -> ()
    }) {domain = array<i64: -9223372036854775808, 64>, neptune.axes = array<i64: 0, 1>,
        result_axes = array<i64: 0, 1>} : (index) -> tensor<?x64xf32>
    "neptune.produce"(%o) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<?x64xf32>) -> ()
  }, {
  }) {axis = 1 : i64, axis_names = ["i", "j"],
      domain = array<i64: -9223372036854775808, 64>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (index) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

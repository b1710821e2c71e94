// linalg on tensors becomes nests; what has no nest form stays as it is.
// RUN: neptune-opt %s --raise-linalg --canonicalize --cse 2>/dev/null | filecheck %s

// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[COL:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @matmul
// CHECK:      "neptune.reduce"() ({
// CHECK-DAG:    %[[A:.*]] = "neptune.read"(%arg0) {map = #[[ROW]]}
// CHECK-DAG:    %[[B:.*]] = "neptune.read"(%arg1) {map = #[[COL]]}
// CHECK:        arith.mulf %[[A]], %[[B]]
// CHECK:      }) {combiner = "add", domain = array<i64: 4, 8, 16>, identity = 0.000000e+00 : f32
// CHECK-SAME: result_axes = array<i64: 0, 1>
// CHECK-NOT:  linalg
func.func @matmul(%a: tensor<4x16xf32>, %b: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = linalg.matmul ins(%a, %b : tensor<4x16xf32>, tensor<16x8xf32>) outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @softmax
// CHECK:      "neptune.reduce"
// CHECK:      combiner = "max"
// CHECK:      math.exp
// CHECK:      combiner = "add"
// CHECK:      arith.divf
// CHECK-NOT:  linalg
func.func @softmax(%x: tensor<?x?xf32>, %e: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @gather
// CHECK:      linalg.generic
// CHECK:      tensor.extract
func.func @gather(%x: tensor<8xf32>, %i: tensor<4xindex>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%i : tensor<4xindex>) outs(%e : tensor<4xf32>) {
  ^bb0(%k: index, %unused: f32):
    %v = tensor.extract %x[%k] : tensor<8xf32>
    linalg.yield %v : f32
  } -> tensor<4xf32>
  return %g : tensor<4xf32>
}

// The softmax reads the product with its rows in two factors: the product is made in that shape,
// once, and who reads it whole gets it reshaped.
// CHECK-LABEL: func.func @both
// CHECK:      tensor.expand_shape %arg0
// CHECK:      %[[S:.*]] = "neptune.reduce"
// CHECK:      arith.mulf
// CHECK:      domain = array<i64: 2, 4, 5, 6>
// CHECK:      %[[WHOLE:.*]] = tensor.collapse_shape %[[S]]
// CHECK-NOT:  arith.mulf
// CHECK:      "neptune.read"(%[[S]])
// CHECK:      combiner = "max"
// CHECK:      return %{{.*}}, %[[WHOLE]]
func.func @both(%x: tensor<8x6xf32>, %w: tensor<6x5xf32>) -> (tensor<2x4x5xf32>, tensor<8x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x5xf32>) -> tensor<8x5xf32>
  %s = linalg.matmul ins(%x, %w : tensor<8x6xf32>, tensor<6x5xf32>) outs(%f : tensor<8x5xf32>) -> tensor<8x5xf32>
  %t = tensor.expand_shape %s [[0, 1], [2]] output_shape [2, 4, 5] : tensor<8x5xf32> into tensor<2x4x5xf32>
  %e3 = tensor.empty() : tensor<2x4x5xf32>
  %y = linalg.softmax dimension(0) ins(%t : tensor<2x4x5xf32>) outs(%e3 : tensor<2x4x5xf32>) -> tensor<2x4x5xf32>
  return %y, %s : tensor<2x4x5xf32>, tensor<8x5xf32>
}

// The map moves through the expansion; its two loops of the second dimension change places, so
// they stay apart: one loop over both would have them in the wrong order.
// CHECK-LABEL: func.func @shuffle
// CHECK:      %[[X:.*]] = tensor.expand_shape %arg0
// CHECK:      %[[Y:.*]] = "neptune.map"
// CHECK:      "neptune.read"(%[[X]])
// CHECK:      domain = array<i64: 4, 3, 4>, result_axes = array<i64: 0, 2, 1>
// CHECK:      tensor.collapse_shape %[[Y]]
func.func @shuffle(%x: tensor<4x12xf32>) -> tensor<4x12xf32> {
  %e = tensor.empty() : tensor<4x12xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %m = arith.addf %i, %i : f32
    linalg.yield %m : f32
  } -> tensor<4x12xf32>
  %z = tensor.expand_shape %y [[0], [1, 2]] output_shape [4, 3, 4] : tensor<4x12xf32> into tensor<4x3x4xf32>
  %f = tensor.empty() : tensor<4x4x3xf32>
  %t = linalg.transpose ins(%z : tensor<4x3x4xf32>) outs(%f : tensor<4x4x3xf32>) permutation = [0, 2, 1]
  %r = tensor.collapse_shape %t [[0], [1, 2]] : tensor<4x4x3xf32> into tensor<4x12xf32>
  return %r : tensor<4x12xf32>
}

// A reshape whose parts do not line up needs no shape in memory.
// CHECK-LABEL: func.func @reshape
// CHECK-NOT:  tensor.from_elements
// CHECK:      %[[FLAT:.*]] = tensor.collapse_shape %arg0 {{\[\[}}0, 1]]
// CHECK:      tensor.expand_shape %[[FLAT]] {{\[\[}}0, 1]] output_shape [6, 4]
// CHECK-NOT:  tensor.reshape
func.func @reshape(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
  %c6 = arith.constant 6 : index
  %c4 = arith.constant 4 : index
  %shape = tensor.from_elements %c6, %c4 : tensor<2xindex>
  %y = tensor.reshape %x(%shape) : (tensor<4x6xf32>, tensor<2xindex>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// Positions that are computed as `index`, which no tensor in memory holds.
// CHECK-LABEL: func.func @clamped_rows
// CHECK:      %[[AT:.*]] = "neptune.map"
// CHECK:      arith.minsi
// CHECK:      tensor<16xi64>
// CHECK:      "neptune.read"(%[[AT]])
// CHECK:      arith.index_cast
// CHECK:      "neptune.read"(%arg0
func.func @clamped_rows(%t: tensor<31x4xf32>, %at: tensor<16xi32>) -> tensor<16x4xf32> {
  %c0 = arith.constant 0 : index
  %c30 = arith.constant 30 : index
  %e = tensor.empty() : tensor<16x4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<16xi32>) outs(%e : tensor<16x4xf32>) {
  ^bb0(%p: i32, %o: f32):
    %i = arith.index_cast %p : i32 to index
    %low = arith.maxsi %i, %c0 : index
    %row = arith.minsi %low, %c30 : index
    %column = linalg.index 1 : index
    %v = tensor.extract %t[%row, %column] : tensor<31x4xf32>
    linalg.yield %v : f32
  } -> tensor<16x4xf32>
  return %r : tensor<16x4xf32>
}

// An input that nobody wrote has any elements.
// CHECK-LABEL: func.func @unwritten
// CHECK:      "neptune.map"
// CHECK-NOT:  linalg
// CHECK:      return
func.func @unwritten(%c: tensor<8xi1>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>, affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      ins(%c, %x, %e : tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%k: i1, %a: f32, %b: f32, %o: f32):
    %s = arith.select %k, %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// RUN: neptune-opt %s --lower-tm-tensor | filecheck %s
// RUN: not neptune-opt %S/Inputs/scan-of-differences.mlir --lower-tm-tensor 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: neptune-opt %s '--lower-tm-tensor=most=1024' | filecheck %s --check-prefix=PASS
// REQUIRES: torch_mlir

// REFUSED: scan-of-differences.mlir:2:10: error: 'tm_tensor.scan' has no lowering for what it combines elements with

#same = affine_map<(i) -> (i)>

// A scan is a reduction over what stands before each element; its last value one over all.

// CHECK-LABEL: func.func @sums
// CHECK: %[[ALL:.*]] = "neptune.reduce"
// CHECK: domain = array<i64: 4, 9>{{.*}} result_axes = array<i64: 0>
// CHECK: %[[SUMS:.*]] = "neptune.reduce"
// CHECK: arith.cmpi sle
// CHECK: combiner = "add", domain = array<i64: 4, 9, 9>{{.*}} result_axes = array<i64: 0, 1>
// CHECK: return %[[SUMS]], %[[ALL]]
func.func @sums(%x: tensor<4x9xf32>, %o: tensor<4x9xf32>, %a: tensor<4xf32>)
    -> (tensor<4x9xf32>, tensor<4xf32>) {
  %s:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<4x9xf32>)
      outs(%o, %a : tensor<4x9xf32>, tensor<4xf32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.addf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<4x9xf32>, tensor<4xf32>
  return %s#0, %s#1 : tensor<4x9xf32>, tensor<4xf32>
}

// A long one: within blocks, and of the blocks before.

// A target whose programs compute prefixes in one pass has one reduction.

// PASS-LABEL: func.func @products
// PASS: arith.cmpi sle
// PASS: combiner = "mul", domain = array<i64: 360, 360>
// PASS-NOT: neptune.reduce
// PASS: return

// CHECK-LABEL: func.func @products
// CHECK: tensor.expand_shape %arg0 {{.*}} output_shape [20, 18]
// CHECK: combiner = "mul", domain = array<i64: 20, 18, 18>
// CHECK: combiner = "mul", domain = array<i64: 20, 18>
// CHECK: combiner = "mul", domain = array<i64: 20, 20>
// CHECK: "neptune.map"
// CHECK: tensor.collapse_shape
func.func @products(%x: tensor<360xf32>, %o: tensor<360xf32>, %a: tensor<f32>) -> tensor<360xf32> {
  %s:2 = tm_tensor.scan dimension(0) inclusive(true) ins(%x : tensor<360xf32>)
      outs(%o, %a : tensor<360xf32>, tensor<f32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.mulf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<360xf32>, tensor<f32>
  return %s#0 : tensor<360xf32>
}

// Between two flips: from the end. Behind the identity, without the last: of what stands before.

// CHECK-LABEL: func.func @from_the_end
// CHECK: arith.cmpi sge
// CHECK: "neptune.read"(%arg0)
// CHECK-NOT: tensor.extract
// CHECK-LABEL: func.func @exclusive
// CHECK: arith.cmpi slt
// CHECK: "neptune.read"(%arg0)
// CHECK: domain = array<i64: 9, 9>
// CHECK-NOT: tensor.concat
func.func @from_the_end(%x: tensor<9xf32>, %o: tensor<9xf32>, %a: tensor<f32>) -> tensor<9xf32> {
  %last = arith.constant 8 : index
  %f = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<9xf32>) outs(%o : tensor<9xf32>) {
  ^bb0(%v: f32, %w: f32):
    %i = linalg.index 0 : index
    %j = arith.subi %last, %i : index
    %r = tensor.extract %x[%j] : tensor<9xf32>
    linalg.yield %r : f32
  } -> tensor<9xf32>
  %s:2 = tm_tensor.scan dimension(0) inclusive(true) ins(%f : tensor<9xf32>)
      outs(%o, %a : tensor<9xf32>, tensor<f32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.addf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<9xf32>, tensor<f32>
  %g = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%s#0 : tensor<9xf32>) outs(%o : tensor<9xf32>) {
  ^bb0(%v: f32, %w: f32):
    %i = linalg.index 0 : index
    %j = arith.subi %last, %i : index
    %r = tensor.extract %s#0[%j] : tensor<9xf32>
    linalg.yield %r : f32
  } -> tensor<9xf32>
  return %g : tensor<9xf32>
}

func.func @exclusive(%x: tensor<9xf32>, %o: tensor<8xf32>, %a: tensor<f32>) -> tensor<9xf32> {
  %zero = arith.constant dense<0.0> : tensor<1xf32>
  %f = tensor.extract_slice %x[0] [8] [1] : tensor<9xf32> to tensor<8xf32>
  %s:2 = tm_tensor.scan dimension(0) inclusive(true) ins(%f : tensor<8xf32>)
      outs(%o, %a : tensor<8xf32>, tensor<f32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.addf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<8xf32>, tensor<f32>
  %c = tensor.concat dim(0) %zero, %s#0 : (tensor<1xf32>, tensor<8xf32>) -> tensor<9xf32>
  return %c : tensor<9xf32>
}

// Ranks, and what has each rank. A NaN is larger than every number.

// CHECK-LABEL: func.func @sorted
// CHECK: %[[RANK:.*]] = "neptune.reduce"
// CHECK: arith.cmpf une
// CHECK: combiner = "add", domain = array<i64: 7, 7>
// CHECK: "neptune.reduce"
// CHECK: "neptune.read"(%[[RANK]])
// CHECK: combiner = "max", domain = array<i64: 7, 7>
// CHECK: combiner = "max", domain = array<i64: 7, 7>
func.func @sorted(%x: tensor<7xf32>, %at: tensor<7xi64>) -> (tensor<7xf32>, tensor<7xi64>) {
  %s:2 = tm_tensor.sort dimension(0) outs(%x, %at : tensor<7xf32>, tensor<7xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<7xf32>, tensor<7xi64>
  return %s#0, %s#1 : tensor<7xf32>, tensor<7xi64>
}

// A loop over the updates; one outside of the tensor changes nothing.

// CHECK-LABEL: func.func @added
// CHECK: scf.for
// CHECK: tensor.extract %arg1
// CHECK: arith.cmpi sge
// CHECK: arith.addf
// CHECK: arith.select
// CHECK: tensor.insert
func.func @added(%u: tensor<3x1x5xf32>, %at: tensor<3x1xi64>, %x: tensor<8x5xf32>)
    -> tensor<8x5xf32> {
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %at : tensor<3x1x5xf32>, tensor<3x1xi64>) outs(%x : tensor<8x5xf32>) {
  ^bb0(%new: f32, %old: f32):
    %t = arith.addf %old, %new : f32
    tm_tensor.yield %t : f32
  } -> tensor<8x5xf32>
  return %s : tensor<8x5xf32>
}

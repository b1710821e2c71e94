// RUN: neptune-opt %s --apply-patterns | filecheck %s
// RUN: neptune-opt %s --apply-patterns=only=distances | filecheck %s --check-prefix=ONE

// One condition for whole tensors becomes a tensor of conditions; a choice between numbers stays.
// CHECK-LABEL: func.func @choose
// CHECK: %[[ALL:.*]] = tensor.splat %arg0[%{{.*}}] : tensor<?x4xi1>
// CHECK: arith.select %[[ALL]], %arg1, %arg2 : tensor<?x4xi1>, tensor<?x4xf32>
// CHECK: arith.select %arg0, %arg3, %arg4 : f32
func.func @choose(%c: i1, %a: tensor<?x4xf32>, %b: tensor<?x4xf32>, %x: f32, %y: f32)
    -> (tensor<?x4xf32>, f32) {
  %t = arith.select %c, %a, %b : tensor<?x4xf32>
  %s = arith.select %c, %x, %y : f32
  return %t, %s : tensor<?x4xf32>, f32
}

// A literal that every type has is compared with in the type of the data, however often that was
// widened and on whichever side the literal stands; 0.1 and other data stay wide.
// CHECK-LABEL: func.func @narrow
// CHECK: arith.cmpf ogt, %arg0, %{{.*}} : f16
// CHECK: arith.cmpf ule, %{{.*}}, %arg1 : f32
// CHECK: arith.cmpf ogt, %{{.*}} : f64
// CHECK: arith.cmpf ogt, %{{.*}} : f64
func.func @narrow(%h: f16, %f: f32) -> (i1, i1, i1, i1) {
  %zero = arith.constant 0.0 : f64
  %tenth = arith.constant 0.1 : f64
  %inf = arith.constant 0xFFF0000000000000 : f64
  %hs = arith.extf %h : f16 to f32
  %hd = arith.extf %hs : f32 to f64
  %fd = arith.extf %f : f32 to f64
  %a = arith.cmpf ogt, %hd, %zero : f64
  %b = arith.cmpf ule, %inf, %fd : f64
  %c = arith.cmpf ogt, %fd, %tenth : f64
  %d = arith.cmpf ogt, %fd, %hd : f64
  return %a, %b, %c, %d : i1, i1, i1, i1
}

// Powers with small whole exponents become products.
// CHECK-LABEL: func.func @powers
// CHECK: %[[S:.*]] = arith.mulf %arg0, %arg0 : f32
// CHECK-NEXT: %[[UNIT:.*]] = arith.constant 1.0{{.*}} : f32
// CHECK-NEXT: %[[P:.*]] = arith.mulf %arg0, %arg0 : f32
// CHECK-NEXT: %[[Q:.*]] = arith.mulf %[[P]], %arg0 : f32
// CHECK-NEXT: arith.constant 1.0
// CHECK-NEXT: %[[I:.*]] = arith.divf %{{.*}}, %[[Q]] : f32
// CHECK-NEXT: %[[T:.*]] = arith.mulf %arg1, %arg1 : tensor<4xf32>
// CHECK-NEXT: %[[L:.*]] = math.fpowi
// CHECK-NEXT: return %[[S]], %[[UNIT]], %[[I]], %[[T]], %[[L]]
func.func @powers(%x: f32, %t: tensor<4xf32>) -> (f32, f32, f32, tensor<4xf32>, f32) {
  %two = arith.constant 2 : i64
  %none = arith.constant 0 : i64
  %back = arith.constant -3 : i64
  %ten = arith.constant 10 : i64
  %twos = arith.constant dense<2> : tensor<4xi32>
  %a = math.fpowi %x, %two : f32, i64
  %b = math.fpowi %x, %none : f32, i64
  %c = math.fpowi %x, %back : f32, i64
  %d = math.fpowi %t, %twos : tensor<4xf32>, tensor<4xi32>
  %e = math.fpowi %x, %ten : f32, i64
  return %a, %b, %c, %d, %e : f32, f32, f32, tensor<4xf32>, f32
}

// Squares, and cubes of what is no 16-bit float, are products in PyTorch as well.
// CHECK-LABEL: func.func @float_powers
// CHECK: arith.mulf %arg0, %arg0 : f32
// CHECK: %[[B:.*]] = arith.mulf %arg1, %arg1 : bf16
// CHECK: %[[K:.*]] = math.powf %arg1
// CHECK: return %{{.*}}, %[[B]], %[[K]]
func.func @float_powers(%x: f32, %y: bf16) -> (f32, bf16, bf16) {
  %two = arith.constant 2.0 : bf16
  %three = arith.constant 3.0 : f32
  %cube = arith.constant 3.0 : bf16
  %a = math.powf %x, %three : f32
  %b = math.powf %y, %two : bf16
  %c = math.powf %y, %cube : bf16
  return %a, %b, %c : f32, bf16, bf16
}

// Distances and limits become two comparisons, in whichever order they stand.
// CHECK-LABEL: func.func @near
// ONE-LABEL: func.func @powers
// ONE: math.fpowi
// ONE-LABEL: func.func @near
// ONE: %[[D:.*]] = arith.subi %arg0, %arg1 : index
// ONE: %[[W:.*]] = arith.subi %{{.*}}, %arg2 : index
// ONE: arith.cmpi sle, %[[D]], %arg2 : index
// ONE: arith.cmpi sge, %[[D]], %[[W]] : index
// ONE: arith.andi
// ONE: arith.cmpi sgt, %[[D]], %c3
// ONE: arith.cmpi slt, %[[D]], %c-3
// ONE: arith.ori
// ONE: arith.cmpi ult
// ONE: arith.cmpi sle, %[[D]], %arg2 : index
// ONE: arith.andi
// ONE: arith.maxsi
// ONE-NOT: arith.andi
func.func @near(%i: index, %j: index, %w: index) -> (i1, i1, i1, i1, i1) {
  %d = arith.subi %i, %j : index
  %n = math.absi %d : index
  %c3 = arith.constant 3 : index
  %a = arith.cmpi sle, %n, %w : index
  %b = arith.cmpi slt, %c3, %n : index
  %c = arith.cmpi ult, %n, %w : index
  %c0 = arith.constant 0 : index
  %back = arith.subi %c0, %d : index
  %m = arith.maxsi %back, %d : index
  %e = arith.cmpi sle, %m, %w : index
  %other = arith.subi %c3, %d : index
  %o = arith.maxsi %d, %other : index
  %f = arith.cmpi sle, %o, %w : index
  return %a, %b, %c, %e, %f : i1, i1, i1, i1, i1
}

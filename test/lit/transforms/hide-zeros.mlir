// RUN: neptune-opt %s --hide-zeros | filecheck %s

// Each factor of a product is 0 where the other one is; sums stay.
// CHECK-LABEL: func.func @f
// CHECK-SAME: (%[[P:.*]]: f32, %[[X:.*]]: f32)
// CHECK: %[[ZERO:.*]] = arith.constant 0.0
// CHECK: %[[NO_P:.*]] = arith.cmpf oeq, %[[P]], %[[ZERO]]
// CHECK: %[[NO_X:.*]] = arith.cmpf oeq, %[[X]], %[[ZERO]]
// CHECK: %[[A:.*]] = arith.select %[[NO_X]], %[[ZERO]], %[[P]]
// CHECK: %[[B:.*]] = arith.select %[[NO_P]], %[[ZERO]], %[[X]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[A]], %[[B]]
// CHECK-NEXT: arith.addf %[[PRODUCT]], %[[X]]
func.func @f(%p: f32, %x: f32) -> f32 {
  %product = arith.mulf %p, %x : f32
  %sum = arith.addf %product, %x : f32
  return %sum : f32
}

// What a mask adds -inf to is -inf, an infinity or a NaN too.
// CHECK-LABEL: func.func @mask
// CHECK-SAME: (%[[C:.*]]: i1, %[[X:.*]]: f32)
// CHECK: %[[M:.*]] = arith.select %[[C]]
// CHECK: %[[GONE:.*]] = arith.cmpf oeq, %[[M]]
// CHECK: %[[LEFT:.*]] = arith.select %[[GONE]], %{{.*}}, %[[X]]
// CHECK: arith.addf %[[LEFT]], %[[M]]
func.func @mask(%c: i1, %x: f32) -> f32 {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %mask = arith.select %c, %zero, %least : f32
  %sum = arith.addf %x, %mask : f32
  return %sum : f32
}

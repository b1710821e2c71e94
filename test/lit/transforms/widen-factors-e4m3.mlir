// RUN: neptune-opt %s --widen-factors=products=true | filecheck %s
// RUN: neptune-opt %s --widen-factors=products=true --float8-bits=products=true | filecheck %s --check-prefix=BITS
// RUN: neptune-opt %s --widen-factors --float8-bits | filecheck %s --check-prefix=WIDE

// Weights that a product rounds to e4m3 are rounded once, in a tile op of their own; the product takes
// both factors in 8 bits.
// CHECK-LABEL: func.func @both(
// CHECK: %[[P:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xf8E4M3FN>) attrs = {neptune.narrows = "f8E4M3FN"}
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f8E4M3FN):
// CHECK-NEXT: %[[Y:.*]] = arith.truncf %[[X]] {neptune.loose} : f32 to f8E4M3FN
// CHECK: linalg.generic {{.*}} ins(%[[P]], %{{.*}} : tensor<4x8xf8E4M3FN>, tensor<16x8xf8E4M3FN>)
// CHECK-NOT: neptune.widens

// Behind `float8-bits` they are bytes that the product takes for what they are. Rounding is arithmetic
// on bits.
// BITS-LABEL: func.func @both(%{{.*}}: tensor<4x8xf32>, %{{.*}}: tensor<16x8xi8>
// BITS: arith.minui %{{.*}}, %{{.*}} : i32
// BITS: arith.trunci %{{.*}} : i32 to i8
// BITS: ^bb0(%[[A:.*]]: i8, %[[B:.*]]: i8, %{{.*}}: f32):
// BITS-NEXT: %[[FA:.*]] = arith.bitcast %[[A]] : i8 to f8E4M3FN
// BITS-NEXT: %{{.*}} = arith.extf %[[FA]] : f8E4M3FN to f32
// BITS-NEXT: %[[FB:.*]] = arith.bitcast %[[B]] : i8 to f8E4M3FN
// BITS-NEXT: %{{.*}} = arith.extf %[[FB]] : f8E4M3FN to f32

// Without `products` both are widened.
// WIDE-LABEL: func.func @both(
// WIDE-COUNT-2: neptune.widens = "f8E4M3FN"
// WIDE: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<16x8xf32>)
#qd = affine_map<(q, k, d) -> (q, d)>
#kd = affine_map<(q, k, d) -> (k, d)>
#qk = affine_map<(q, k, d) -> (q, k)>
func.func @both(%q: tensor<4x8xf32>, %k: tensor<16x8xf8E4M3FN>, %o: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %r = linalg.generic {indexing_maps = [#qd, #kd, #qk],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x8xf32>, tensor<16x8xf8E4M3FN>) outs(%o : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f8E4M3FN, %c: f32):
    %n = arith.truncf %a {neptune.loose} : f32 to f8E4M3FN
    %x = arith.extf %n : f8E4M3FN to f32
    %y = arith.extf %b : f8E4M3FN to f32
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %c, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// What a program rounds itself makes NaN of what is too large, and chips' conversions do not.
// CHECK-LABEL: func.func @as_written(
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xf8E4M3FN>) {
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %{{.*}}: f8E4M3FN):
// CHECK-NEXT: arith.truncf %[[X]] : f32 to f8E4M3FN
func.func @as_written(%q: tensor<4x8xf32>, %k: tensor<16x8xf8E4M3FN>, %o: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %r = linalg.generic {indexing_maps = [#qd, #kd, #qk],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x8xf32>, tensor<16x8xf8E4M3FN>) outs(%o : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f8E4M3FN, %c: f32):
    %n = arith.truncf %a : f32 to f8E4M3FN
    %x = arith.extf %n : f8E4M3FN to f32
    %y = arith.extf %b : f8E4M3FN to f32
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %c, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

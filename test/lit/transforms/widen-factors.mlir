// RUN: neptune-opt %s --widen-factors | filecheck %s
// RUN: neptune-opt %s --widen-factors --float8-bits | filecheck %s --check-prefix=BITS

// A factor in 8 bits is converted once, in a tile op of its own that says what it does, and the
// product has two tiles of f16.
// CHECK-LABEL: func.func @bytes(
// CHECK-SAME: %[[Q:.*]]: tensor<4x8xf16>, %[[K:.*]]: tensor<16x8xi8>
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[K]] : tensor<16x8xi8>) outs(%{{.*}} : tensor<16x8xf16>) attrs = {neptune.widens = "i8"}
// CHECK-NEXT: ^bb0(%[[X:.*]]: i8, %{{.*}}: f16):
// CHECK-NEXT: %[[Y:.*]] = arith.sitofp %[[X]] : i8 to f16
// CHECK-NEXT: linalg.yield %[[Y]]
// CHECK: linalg.generic {{.*}} ins(%[[Q]], %[[W]] : tensor<4x8xf16>, tensor<16x8xf16>)
// CHECK-NOT: arith.sitofp
#qd = affine_map<(q, k, d) -> (q, d)>
#kd = affine_map<(q, k, d) -> (k, d)>
#qk = affine_map<(q, k, d) -> (q, k)>
func.func @bytes(%q: tensor<4x8xf16>, %k: tensor<16x8xi8>, %o: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %r = linalg.generic {indexing_maps = [#qd, #kd, #qk],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x8xf16>, tensor<16x8xi8>) outs(%o : tensor<4x16xf32>) {
  ^bb0(%a: f16, %b: i8, %c: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.sitofp %b : i8 to f16
    %z = arith.extf %y : f16 to f32
    %m = arith.mulf %x, %z : f32
    %s = arith.addf %c, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// An op that only converts stays as it is.
// CHECK-LABEL: func.func @converts(
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: neptune.widens

// With `float8-bits` behind it, the array is one of bytes, and the function says what it was.
// BITS-LABEL: func.func @converts(%{{.*}}: tensor<8xi8>) -> tensor<8xf32>
// BITS-SAME: neptune.stored = ["f8E4M3FN", ""]
// BITS: ^bb0(%[[B:.*]]: i8, %{{.*}}: f32):
// BITS: %[[WIDE:.*]] = arith.extsi %[[B]] : i8 to i16
// BITS: %[[MOVED:.*]] = arith.shli %[[WIDE]], %{{.*}} : i16
// BITS: %[[BITS:.*]] = arith.andi %[[MOVED]], %{{.*}} : i16
// BITS: %[[SMALL:.*]] = arith.bitcast %[[BITS]] : i16 to f16
// BITS: %[[F:.*]] = arith.extf %[[SMALL]] : f16 to f32
// BITS: %[[V:.*]] = arith.mulf %[[F]], %{{.*}} : f32
// BITS: arith.select %{{.*}}, %{{.*}}, %[[V]] : f32
#i = affine_map<(i) -> (i)>
func.func @converts(%x: tensor<8xf8E4M3FN>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf8E4M3FN>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f8E4M3FN, %c: f32):
    %y = arith.extf %a : f8E4M3FN to f32
    linalg.yield %y : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// What reads one element at a number is no product.
// CHECK-LABEL: func.func @at_a_number(
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: neptune.widens
// CHECK:      return
func.func @at_a_number(%x: tensor<8xf32>, %y: tensor<1xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#i, affine_map<(i) -> (0)>, #i], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<8xf32>, tensor<1xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %z = arith.addf %a, %b : f32
    linalg.yield %z : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

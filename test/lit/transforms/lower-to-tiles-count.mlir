// RUN: neptune-opt %s --raise-linalg --inline-maps --rolling-update --tile --lower-to-tiles --canonicalize --cse 2>/dev/null | filecheck %s

// A sum of ones is how many there are, where one tile has all of them: nothing is added up.

#x = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @share
// CHECK: %[[ALL:.*]] = arith.constant 1.000000e+02 : f32
// CHECK: share_0
// CHECK: linalg.generic {{.*}} iterator_types = []} outs
// CHECK: arith.addf %{{.*}}, %[[ALL]] : f32
// CHECK-NOT: "reduction"
// CHECK: share_1
func.func @share(%x: tensor<?x100xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x100xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s:2 = linalg.generic {indexing_maps = [#x, #i, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x100xf32>) outs(%s0, %s0 : tensor<?xf32>, tensor<?xf32>) {
    ^bb0(%v: f32, %a: f32, %c: f32):
      %s = arith.addf %a, %v : f32
      %k = arith.addf %c, %one : f32
      linalg.yield %s, %k : f32, f32
  } -> (tensor<?xf32>, tensor<?xf32>)
  return %s#0, %s#1 : tensor<?xf32>, tensor<?xf32>
}

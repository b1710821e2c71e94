// Two axes reduced at once, a product, a minimum of integers, and a boolean any.
// kernels: 2 (the product reads another tensor than the other two)
#id = affine_map<(i, j, k) -> (i, j, k)>
#out = affine_map<(i, j, k) -> (j)>
func.func @several(%x: tensor<3x4x5xf32>, %n: tensor<3x4x5xi32>) -> (tensor<4xf32>, tensor<4xi32>, tensor<4xi1>) {
  %one = arith.constant 1.0 : f32
  %big = arith.constant 2147483647 : i32
  %three = arith.constant 3 : i32
  %false = arith.constant false
  %e0 = tensor.empty() : tensor<4xf32>
  %e1 = tensor.empty() : tensor<4xi32>
  %e2 = tensor.empty() : tensor<4xi1>
  %f0 = linalg.fill ins(%one : f32) outs(%e0 : tensor<4xf32>) -> tensor<4xf32>
  %f1 = linalg.fill ins(%big : i32) outs(%e1 : tensor<4xi32>) -> tensor<4xi32>
  %f2 = linalg.fill ins(%false : i1) outs(%e2 : tensor<4xi1>) -> tensor<4xi1>
  %r:3 = linalg.generic {indexing_maps = [#id, #id, #out, #out, #out], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%x, %n : tensor<3x4x5xf32>, tensor<3x4x5xi32>) outs(%f0, %f1, %f2 : tensor<4xf32>, tensor<4xi32>, tensor<4xi1>) {
  ^bb0(%a: f32, %b: i32, %p: f32, %q: i32, %s: i1):
    %p2 = arith.mulf %p, %a : f32
    %q2 = arith.minsi %b, %q : i32
    %hit = arith.cmpi eq, %b, %three : i32
    %s2 = arith.ori %s, %hit : i1
    linalg.yield %p2, %q2, %s2 : f32, i32, i1
  } -> (tensor<4xf32>, tensor<4xi32>, tensor<4xi1>)
  return %r#0, %r#1, %r#2 : tensor<4xf32>, tensor<4xi32>, tensor<4xi1>
}

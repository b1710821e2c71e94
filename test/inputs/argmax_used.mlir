// Somebody reads the argmax: it is no monoid over one value, so that op stays; the maximum it also
// gives is raised all the same.
// kernels: 4 (two fills, the argmax as it was written, and the maximum's exp)
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @argmax(%x: tensor<4x15xf32>) -> (tensor<4xf32>, tensor<4xi64>) {
  %zero = arith.constant 0 : i64
  %ninf = arith.constant 0xFF800000 : f32
  %e1 = tensor.empty() : tensor<4xf32>
  %e2 = tensor.empty() : tensor<4xi64>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %af = linalg.fill ins(%zero : i64) outs(%e2 : tensor<4xi64>) -> tensor<4xi64>
  %r:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x15xf32>) outs(%mf, %af : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%a: f32, %m: f32, %k: i64):
    %j = linalg.index 1 : index
    %ji = arith.index_cast %j : index to i64
    %m2 = arith.maximumf %a, %m : f32
    %gt = arith.cmpf ogt, %a, %m : f32
    %k2 = arith.select %gt, %ji, %k : i64
    linalg.yield %m2, %k2 : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  %y = linalg.exp ins(%r#0 : tensor<4xf32>) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  return %y, %r#1 : tensor<4xf32>, tensor<4xi64>
}

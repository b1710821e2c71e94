// LayerNorm in two passes, with scale and shift; the scale of the statistics is a scalar argument.
// kernels: 1
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
func.func @layernorm(%x: tensor<6x40xf32>, %g: tensor<40xf32>, %b: tensor<40xf32>, %eps: tensor<f32>) -> tensor<6x40xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 40.0 : f32
  %ev = tensor.extract %eps[] : tensor<f32>
  %e1 = tensor.empty() : tensor<6xf32>
  %e2 = tensor.empty() : tensor<6x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<6x40xf32>) outs(%f : tensor<6xf32>) dimensions = [1]
  %mean = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%s : tensor<6xf32>) outs(%e1 : tensor<6xf32>) {
  ^bb0(%a: f32, %u: f32):
    %r = arith.divf %a, %n : f32
    linalg.yield %r : f32
  } -> tensor<6xf32>
  %q = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%x, %mean : tensor<6x40xf32>, tensor<6xf32>) outs(%f : tensor<6xf32>) {
  ^bb0(%a: f32, %m: f32, %acc: f32):
    %d = arith.subf %a, %m : f32
    %d2 = arith.mulf %d, %d : f32
    %r = arith.addf %acc, %d2 : f32
    linalg.yield %r : f32
  } -> tensor<6xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #row, #col, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean, %q, %g, %b : tensor<6x40xf32>, tensor<6xf32>, tensor<6xf32>, tensor<40xf32>, tensor<40xf32>) outs(%e2 : tensor<6x40xf32>) {
  ^bb0(%a: f32, %m: f32, %v: f32, %gg: f32, %bb: f32, %u: f32):
    %d = arith.subf %a, %m : f32
    %var = arith.divf %v, %n : f32
    %ve = arith.addf %var, %ev : f32
    %i = math.rsqrt %ve : f32
    %z = arith.mulf %d, %i : f32
    %t = arith.mulf %z, %gg : f32
    %r = arith.addf %t, %bb : f32
    linalg.yield %r : f32
  } -> tensor<6x40xf32>
  return %y : tensor<6x40xf32>
}

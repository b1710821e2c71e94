// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (8x37:float32, 37:float32, 37x9:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, 0)>
#map2 = affine_map<(d0, d1) -> (d1)>
module {
  func.func @rms_norm_matmul_dynamic(%arg0: tensor<?x37xf32>, %arg1: tensor<37xf32>, %arg2: tensor<37x9xf32>) -> tensor<?x9xf32> {
    %c2_i64 = arith.constant 2 : i64
    %c0 = arith.constant 0 : index
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 9.9999999999999995E-7 : f64
    %cst_1 = arith.constant 3.700000e+01 : f32
    %dim = tensor.dim %arg0, %c0 : tensor<?x37xf32>
    %0 = tensor.empty(%dim) : tensor<?x37xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<?x37xf32>) outs(%0 : tensor<?x37xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = math.fpowi %in, %c2_i64 : f32, i64
      linalg.yield %13 : f32
    } -> tensor<?x37xf32>
    %2 = tensor.empty(%dim) : tensor<?x1xf32>
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<?x1xf32>) -> tensor<?x1xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<?x37xf32>) outs(%3 : tensor<?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = arith.addf %in, %out : f32
      linalg.yield %13 : f32
    } -> tensor<?x1xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<?x1xf32>) outs(%2 : tensor<?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = arith.divf %in, %cst_1 : f32
      linalg.yield %13 : f32
    } -> tensor<?x1xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%5 : tensor<?x1xf32>) outs(%2 : tensor<?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = arith.truncf %cst_0 : f64 to f32
      %14 = arith.addf %in, %13 : f32
      linalg.yield %14 : f32
    } -> tensor<?x1xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<?x1xf32>) outs(%2 : tensor<?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = math.rsqrt %in : f32
      linalg.yield %13 : f32
    } -> tensor<?x1xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %7 : tensor<?x37xf32>, tensor<?x1xf32>) outs(%0 : tensor<?x37xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %13 = arith.mulf %in, %in_2 : f32
      linalg.yield %13 : f32
    } -> tensor<?x37xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %arg1 : tensor<?x37xf32>, tensor<37xf32>) outs(%0 : tensor<?x37xf32>) {
    ^bb0(%in: f32, %in_2: f32, %out: f32):
      %13 = arith.mulf %in, %in_2 : f32
      linalg.yield %13 : f32
    } -> tensor<?x37xf32>
    %10 = tensor.empty(%dim) : tensor<?x9xf32>
    %11 = linalg.fill ins(%cst : f32) outs(%10 : tensor<?x9xf32>) -> tensor<?x9xf32>
    %12 = linalg.matmul ins(%9, %arg2 : tensor<?x37xf32>, tensor<37x9xf32>) outs(%11 : tensor<?x9xf32>) -> tensor<?x9xf32>
    return %12 : tensor<?x9xf32>
  }
}

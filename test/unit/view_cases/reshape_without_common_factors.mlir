// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 4x6xf64 6xf64 6x1x1x1x4x1xf64
func.func @main(%0: tensor<4x6xf64>, %16: tensor<6xf64>, %25: tensor<6x1x1x1x4x1xf64>) -> (tensor<2x1x1xf64>) {
  %1 = arith.constant 0.000000e+00 : f64
  %2 = tensor.empty() : tensor<4xf64>
  %3 = linalg.fill ins(%1 : f64) outs(%2 : tensor<4xf64>) -> tensor<4xf64>
  %4 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<4x6xf64>) outs(%3 : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %5 = tensor.empty() : tensor<4x6xf64>
  %6 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %4 : tensor<4x6xf64>, tensor<4xf64>) outs(%5 : tensor<4x6xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4x6xf64>
  %7 = tensor.empty() : tensor<4x6xf64>
  %8 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<4x6xf64>) outs(%7 : tensor<4x6xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.mulf %a, %a : f64
    linalg.yield %m : f64
  } -> tensor<4x6xf64>
  %9 = arith.constant 0.000000e+00 : f64
  %10 = tensor.empty() : tensor<4xf64>
  %11 = linalg.fill ins(%9 : f64) outs(%10 : tensor<4xf64>) -> tensor<4xf64>
  %12 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%8 : tensor<4x6xf64>) outs(%11 : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %13 = tensor.empty() : tensor<4xf64>
  %14 = arith.constant -5.000000e-01 : f64
  %15 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%12 : tensor<4xf64>) outs(%13 : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.mulf %a, %14 : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %17 = tensor.insert_slice %15 into %16[2] [4] [1] : tensor<4xf64> into tensor<6xf64>
  %18 = arith.constant 6 : index
  %19 = arith.constant 1 : index
  %20 = arith.constant 1 : index
  %21 = arith.constant 4 : index
  %22 = arith.constant 1 : index
  %23 = tensor.from_elements %18, %19, %20, %21, %22 : tensor<5xindex>
  %24 = tensor.reshape %0(%23) : (tensor<4x6xf64>, tensor<5xindex>) -> tensor<6x1x1x4x1xf64>
  %26 = tensor.collapse_shape %25 [[0], [1], [2], [3, 4], [5]] : tensor<6x1x1x1x4x1xf64> into tensor<6x1x1x4x1xf64>
  %27 = tensor.empty() : tensor<6x1x1x4x1xf64>
  %28 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%24, %26 : tensor<6x1x1x4x1xf64>, tensor<6x1x1x4x1xf64>) outs(%27 : tensor<6x1x1x4x1xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<6x1x1x4x1xf64>
  %29 = tensor.extract_slice %28[4, 0, 0, 0, 0] [2, 1, 1, 1, 1] [1, 1, 1, 1, 1] : tensor<6x1x1x4x1xf64> to tensor<2x1x1xf64>
  return %29 : tensor<2x1x1xf64>
}

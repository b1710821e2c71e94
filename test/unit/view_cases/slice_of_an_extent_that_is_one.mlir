// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 1x1xf64 1x3xf64
func.func @main(%0: tensor<?x1xf64>, %1: tensor<1x3xf64>) -> (tensor<1x?xf64>) {
  %2 = arith.constant 0 : index
  %3 = tensor.dim %0, %2 : tensor<?x1xf64>
  %4 = arith.constant 0.000000e+00 : f64
  %5 = tensor.empty(%3) : tensor<?x3xf64>
  %6 = linalg.fill ins(%4 : f64) outs(%5 : tensor<?x3xf64>) -> tensor<?x3xf64>
  %7 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d2)>], iterator_types = ["parallel", "reduction", "parallel"]} ins(%0, %1 : tensor<?x1xf64>, tensor<1x3xf64>) outs(%6 : tensor<?x3xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %p = arith.mulf %a, %b : f64
    %m = arith.addf %p, %o : f64
    linalg.yield %m : f64
  } -> tensor<?x3xf64>
  %8 = arith.constant 0 : index
  %9 = tensor.dim %7, %8 : tensor<?x3xf64>
  %10 = tensor.empty(%9) : tensor<?x3xf64>
  %11 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%7, %1 : tensor<?x3xf64>, tensor<1x3xf64>) outs(%10 : tensor<?x3xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x3xf64>
  %12 = arith.constant 0 : index
  %13 = tensor.dim %11, %12 : tensor<?x3xf64>
  %14 = arith.constant 0 : index
  %15 = tensor.dim %11, %14 : tensor<?x3xf64>
  %16 = tensor.expand_shape %11 [[0, 1], [2]] output_shape [1, %13, 3] : tensor<?x3xf64> into tensor<1x?x3xf64>
  %17 = arith.constant 1 : index
  %18 = tensor.dim %16, %17 : tensor<1x?x3xf64>
  %19 = tensor.extract_slice %16[0, 0, 1] [1, %18, 1] [1, 1, 1] : tensor<1x?x3xf64> to tensor<1x?xf64>
  return %19 : tensor<1x?xf64>
}

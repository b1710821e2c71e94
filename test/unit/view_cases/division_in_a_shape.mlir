// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 12xf64
func.func @main(%0: tensor<?xf64>) -> (tensor<?xf64>, tensor<?xf64>) {
  %1 = arith.constant 0 : index
  %2 = tensor.dim %0, %1 : tensor<?xf64>
  %3 = arith.constant 2 : index
  %4 = arith.divsi %2, %3 : index
  %5 = arith.constant 0 : index
  %6 = tensor.dim %0, %5 : tensor<?xf64>
  %7 = tensor.expand_shape %0 [[0, 1]] output_shape [2, %4] : tensor<?xf64> into tensor<2x?xf64>
  %8 = arith.constant 1 : index
  %9 = tensor.dim %7, %8 : tensor<2x?xf64>
  %10 = arith.constant 0.000000e+00 : f64
  %11 = tensor.empty() : tensor<f64>
  %12 = linalg.fill ins(%10 : f64) outs(%11 : tensor<f64>) -> tensor<f64>
  %13 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>], iterator_types = ["reduction", "reduction"]} ins(%7 : tensor<2x?xf64>) outs(%12 : tensor<f64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<f64>
  %14 = arith.constant 0 : index
  %15 = tensor.dim %0, %14 : tensor<?xf64>
  %16 = tensor.empty(%15) : tensor<?xf64>
  %17 = linalg.broadcast ins(%13 : tensor<f64>) outs(%16 : tensor<?xf64>) dimensions = [0]
  %18 = arith.constant 0 : index
  %19 = tensor.dim %17, %18 : tensor<?xf64>
  %20 = tensor.empty(%19) : tensor<?xf64>
  %21 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%17, %0 : tensor<?xf64>, tensor<?xf64>) outs(%20 : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.addf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  return %21, %17 : tensor<?xf64>, tensor<?xf64>
}

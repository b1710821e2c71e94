// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 5x3xf64
func.func @main(%0: tensor<?x?xf64>) -> (tensor<1x?x1xf64>, tensor<1x?xf64>) {
  %1 = arith.constant 0 : index
  %2 = tensor.dim %0, %1 : tensor<?x?xf64>
  %3 = arith.constant 1 : index
  %4 = tensor.dim %0, %3 : tensor<?x?xf64>
  %5 = arith.constant 0.000000e+00 : f64
  %6 = tensor.empty(%4) : tensor<1x?xf64>
  %7 = linalg.fill ins(%5 : f64) outs(%6 : tensor<1x?xf64>) -> tensor<1x?xf64>
  %8 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, d1)>], iterator_types = ["reduction", "parallel"]} ins(%0 : tensor<?x?xf64>) outs(%7 : tensor<1x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<1x?xf64>
  %9 = arith.constant 0 : index
  %10 = tensor.dim %0, %9 : tensor<?x?xf64>
  %11 = arith.constant 1 : index
  %12 = tensor.dim %0, %11 : tensor<?x?xf64>
  %13 = tensor.empty(%10, %12) : tensor<?x?xf64>
  %14 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %8 : tensor<?x?xf64>, tensor<1x?xf64>) outs(%13 : tensor<?x?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x?xf64>
  %15 = arith.constant 0 : index
  %16 = tensor.dim %14, %15 : tensor<?x?xf64>
  %17 = arith.constant 1 : index
  %18 = tensor.dim %14, %17 : tensor<?x?xf64>
  %19 = tensor.empty(%16, %18) : tensor<?x?xf64>
  %20 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%14 : tensor<?x?xf64>) outs(%19 : tensor<?x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.mulf %a, %a : f64
    linalg.yield %m : f64
  } -> tensor<?x?xf64>
  %21 = arith.constant 0 : index
  %22 = tensor.dim %20, %21 : tensor<?x?xf64>
  %23 = arith.constant 1 : index
  %24 = tensor.dim %20, %23 : tensor<?x?xf64>
  %25 = arith.constant 0.000000e+00 : f64
  %26 = tensor.empty(%24) : tensor<1x?xf64>
  %27 = linalg.fill ins(%25 : f64) outs(%26 : tensor<1x?xf64>) -> tensor<1x?xf64>
  %28 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, d1)>], iterator_types = ["reduction", "parallel"]} ins(%20 : tensor<?x?xf64>) outs(%27 : tensor<1x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<1x?xf64>
  %29 = arith.constant 0.000000e+00 : f64
  %30 = tensor.pad %28 low[0, 2] high[0, 3] {
  ^bb0(%p0: index, %p1: index):
    tensor.yield %29 : f64
  } : tensor<1x?xf64> to tensor<1x?xf64>
  %31 = tensor.collapse_shape %28 [[0, 1]] : tensor<1x?xf64> into tensor<?xf64>
  %32 = arith.constant 0 : index
  %33 = tensor.dim %31, %32 : tensor<?xf64>
  %34 = arith.constant 0 : index
  %35 = tensor.dim %31, %34 : tensor<?xf64>
  %36 = tensor.expand_shape %31 [[0, 1, 2]] output_shape [1, %33, 1] : tensor<?xf64> into tensor<1x?x1xf64>
  return %36, %28 : tensor<1x?x1xf64>, tensor<1x?xf64>
}

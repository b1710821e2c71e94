// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 8x6xf64 48xf64 48xf64 4x1xf64
func.func @main(%0: tensor<?x?xf64>, %2: tensor<?xf64>, %7: tensor<48xf64>, %40: tensor<4x1xf64>) -> (tensor<4xf64>, tensor<?xf64>) {
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<?x?xf64> into tensor<?xf64>
  %3 = arith.constant 0 : index
  %4 = tensor.dim %1, %3 : tensor<?xf64>
  %5 = tensor.empty(%4) : tensor<?xf64>
  %6 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%1, %2 : tensor<?xf64>, tensor<?xf64>) outs(%5 : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  %8 = arith.constant 0 : index
  %9 = tensor.dim %6, %8 : tensor<?xf64>
  %10 = tensor.empty(%9) : tensor<?xf64>
  %11 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%6, %7 : tensor<?xf64>, tensor<48xf64>) outs(%10 : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.mulf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  %12 = arith.constant 0 : index
  %13 = tensor.dim %11, %12 : tensor<?xf64>
  %14 = tensor.extract_slice %11[0] [%13] [1] : tensor<?xf64> to tensor<?xf64>
  %15 = arith.constant 0 : index
  %16 = tensor.dim %14, %15 : tensor<?xf64>
  %17 = arith.constant -3.000000e+30 : f64
  %18 = tensor.empty() : tensor<f64>
  %19 = linalg.fill ins(%17 : f64) outs(%18 : tensor<f64>) -> tensor<f64>
  %20 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%14 : tensor<?xf64>) outs(%19 : tensor<f64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<f64>
  %21 = arith.constant 0 : index
  %22 = tensor.dim %14, %21 : tensor<?xf64>
  %23 = tensor.empty(%22) : tensor<?xf64>
  %24 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%14, %20 : tensor<?xf64>, tensor<f64>) outs(%23 : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  %25 = arith.constant 0 : index
  %26 = tensor.dim %24, %25 : tensor<?xf64>
  %27 = tensor.empty(%26) : tensor<?xf64>
  %28 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%24 : tensor<?xf64>) outs(%27 : tensor<?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  %29 = arith.constant 0 : index
  %30 = tensor.dim %28, %29 : tensor<?xf64>
  %31 = arith.constant 0.000000e+00 : f64
  %32 = tensor.empty() : tensor<f64>
  %33 = linalg.fill ins(%31 : f64) outs(%32 : tensor<f64>) -> tensor<f64>
  %34 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%28 : tensor<?xf64>) outs(%33 : tensor<f64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<f64>
  %35 = arith.constant 0 : index
  %36 = tensor.dim %28, %35 : tensor<?xf64>
  %37 = tensor.empty(%36) : tensor<?xf64>
  %38 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%28, %34 : tensor<?xf64>, tensor<f64>) outs(%37 : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?xf64>
  %39 = tensor.extract_slice %38[36] [4] [1] : tensor<?xf64> to tensor<4xf64>
  %41 = tensor.collapse_shape %40 [[0, 1]] : tensor<4x1xf64> into tensor<4xf64>
  %42 = tensor.empty() : tensor<4xf64>
  %43 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%39, %41 : tensor<4xf64>, tensor<4xf64>) outs(%42 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.addf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %44 = tensor.empty() : tensor<4xf64>
  %45 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%43, %41 : tensor<4xf64>, tensor<4xf64>) outs(%44 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  return %45, %38 : tensor<4xf64>, tensor<?xf64>
}

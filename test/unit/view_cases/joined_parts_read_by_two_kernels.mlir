// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 2xf64 2xf64 1xf64 1xf64 6xf64 1xf64
func.func @main(%0: tensor<2xf64>, %1: tensor<2xf64>, %2: tensor<1xf64>, %21: tensor<1xf64>, %23: tensor<6xf64>, %29: tensor<1xf64>) -> (tensor<5xf64>) {
  %3 = tensor.concat dim(0) %1, %0, %2 : (tensor<2xf64>, tensor<2xf64>, tensor<1xf64>) -> tensor<5xf64>
  %4 = arith.constant -3.000000e+30 : f64
  %5 = tensor.empty() : tensor<1xf64>
  %6 = linalg.fill ins(%4 : f64) outs(%5 : tensor<1xf64>) -> tensor<1xf64>
  %7 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (0)>], iterator_types = ["reduction"]} ins(%3 : tensor<5xf64>) outs(%6 : tensor<1xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<1xf64>
  %8 = tensor.empty() : tensor<5xf64>
  %9 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%3, %7 : tensor<5xf64>, tensor<1xf64>) outs(%8 : tensor<5xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5xf64>
  %10 = tensor.empty() : tensor<5xf64>
  %11 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%9 : tensor<5xf64>) outs(%10 : tensor<5xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<5xf64>
  %12 = arith.constant 0.000000e+00 : f64
  %13 = tensor.empty() : tensor<1xf64>
  %14 = linalg.fill ins(%12 : f64) outs(%13 : tensor<1xf64>) -> tensor<1xf64>
  %15 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (0)>], iterator_types = ["reduction"]} ins(%11 : tensor<5xf64>) outs(%14 : tensor<1xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<1xf64>
  %16 = tensor.empty() : tensor<5xf64>
  %17 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%11, %15 : tensor<5xf64>, tensor<1xf64>) outs(%16 : tensor<5xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5xf64>
  %18 = tensor.empty() : tensor<5xf64>
  %19 = arith.constant 0.000000e+00 : f64
  %20 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%17 : tensor<5xf64>) outs(%18 : tensor<5xf64>) {
  ^bb0(%a: f64, %o: f64):
    %i = linalg.index 0 : index
    %j = linalg.index 0 : index
    %c = arith.cmpi sle, %i, %j : index
    %m = arith.select %c, %a, %19 : f64
    linalg.yield %m : f64
  } -> tensor<5xf64>
  %22 = tensor.concat dim(0) %21, %20 : (tensor<1xf64>, tensor<5xf64>) -> tensor<6xf64>
  %24 = tensor.empty() : tensor<6xf64>
  %25 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%22, %23 : tensor<6xf64>, tensor<6xf64>) outs(%24 : tensor<6xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<6xf64>
  %26 = tensor.empty() : tensor<6xf64>
  %27 = arith.constant -5.000000e-01 : f64
  %28 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%25 : tensor<6xf64>) outs(%26 : tensor<6xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.tanh %a : f64
    linalg.yield %m : f64
  } -> tensor<6xf64>
  %30 = tensor.empty() : tensor<5xf64>
  %31 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%9, %29 : tensor<5xf64>, tensor<1xf64>) outs(%30 : tensor<5xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.mulf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5xf64>
  return %31 : tensor<5xf64>
}

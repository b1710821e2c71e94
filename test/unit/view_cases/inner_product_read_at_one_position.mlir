// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 8xf64 18xf64 2xi64<18 2x4xf64 35xf64 4xf64
func.func @main(%0: tensor<8xf64>, %1: tensor<18xf64>, %3: tensor<2xi64>, %6: tensor<2x4xf64>, %25: tensor<35xf64>, %27: tensor<4xf64>) -> (tensor<1xf64>) {
  %2 = tensor.insert_slice %0 into %1[2] [8] [2] : tensor<8xf64> into tensor<18xf64>
  %4 = tensor.empty() : tensor<2xf64>
  %5 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%3 : tensor<2xi64>) outs(%4 : tensor<2xf64>) {
  ^bb0(%a: i64, %o: f64):
    %r = arith.index_cast %a : i64 to index
    %m = tensor.extract %1[%r] : tensor<18xf64>
    linalg.yield %m : f64
  } -> tensor<2xf64>
  %7 = arith.constant 0.000000e+00 : f64
  %8 = tensor.empty() : tensor<4xf64>
  %9 = linalg.fill ins(%7 : f64) outs(%8 : tensor<4xf64>) -> tensor<4xf64>
  %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%5, %6 : tensor<2xf64>, tensor<2x4xf64>) outs(%9 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %p = arith.mulf %a, %b : f64
    %m = arith.addf %p, %o : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %11 = arith.constant -3.000000e+30 : f64
  %12 = tensor.empty() : tensor<f64>
  %13 = linalg.fill ins(%11 : f64) outs(%12 : tensor<f64>) -> tensor<f64>
  %14 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%10 : tensor<4xf64>) outs(%13 : tensor<f64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<f64>
  %15 = tensor.empty() : tensor<4xf64>
  %16 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%10, %14 : tensor<4xf64>, tensor<f64>) outs(%15 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %17 = tensor.empty() : tensor<4xf64>
  %18 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%16 : tensor<4xf64>) outs(%17 : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %19 = arith.constant 0.000000e+00 : f64
  %20 = tensor.empty() : tensor<f64>
  %21 = linalg.fill ins(%19 : f64) outs(%20 : tensor<f64>) -> tensor<f64>
  %22 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%18 : tensor<4xf64>) outs(%21 : tensor<f64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<f64>
  %23 = tensor.empty() : tensor<4xf64>
  %24 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%18, %22 : tensor<4xf64>, tensor<f64>) outs(%23 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %26 = tensor.insert_slice %2 into %25[0] [18] [2] : tensor<18xf64> into tensor<35xf64>
  %28 = tensor.empty() : tensor<4xf64>
  %29 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%16, %27 : tensor<4xf64>, tensor<4xf64>) outs(%28 : tensor<4xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.addf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %30 = tensor.empty() : tensor<4xf64>
  %31 = arith.constant 1.250000e+00 : f64
  %32 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%29 : tensor<4xf64>) outs(%30 : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.absf %a : f64
    linalg.yield %m : f64
  } -> tensor<4xf64>
  %33 = tensor.extract_slice %32[2] [1] [1] : tensor<4xf64> to tensor<1xf64>
  return %33 : tensor<1xf64>
}

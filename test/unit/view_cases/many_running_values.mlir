// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 5x4x4x3xf64
func.func @main(%0: tensor<5x4x4x3xf64>) -> (tensor<5x4x3xf64>) {
  %1 = tensor.empty() : tensor<5x4x4x3xf64>
  %2 = arith.constant 1.250000e+00 : f64
  %3 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%0 : tensor<5x4x4x3xf64>) outs(%1 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.tanh %a : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %4 = tensor.empty() : tensor<5x4x4x3xf64>
  %5 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%3, %0 : tensor<5x4x4x3xf64>, tensor<5x4x4x3xf64>) outs(%4 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.addf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %6 = arith.constant 0.000000e+00 : f64
  %7 = tensor.empty() : tensor<5x4x3xf64>
  %8 = linalg.fill ins(%6 : f64) outs(%7 : tensor<5x4x3xf64>) -> tensor<5x4x3xf64>
  %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%5 : tensor<5x4x4x3xf64>) outs(%8 : tensor<5x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<5x4x3xf64>
  %10 = tensor.empty() : tensor<5x4x4x3xf64>
  %11 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %9 : tensor<5x4x4x3xf64>, tensor<5x4x3xf64>) outs(%10 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %12 = tensor.empty() : tensor<5x4x4x3xf64>
  %13 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<5x4x4x3xf64>) outs(%12 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.mulf %a, %a : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %14 = arith.constant 0.000000e+00 : f64
  %15 = tensor.empty() : tensor<5x4x3xf64>
  %16 = linalg.fill ins(%14 : f64) outs(%15 : tensor<5x4x3xf64>) -> tensor<5x4x3xf64>
  %17 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%13 : tensor<5x4x4x3xf64>) outs(%16 : tensor<5x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<5x4x3xf64>
  %18 = arith.constant 15 : index
  %19 = arith.constant 2 : index
  %20 = arith.constant 1 : index
  %21 = arith.constant 1 : index
  %22 = arith.constant 2 : index
  %23 = tensor.from_elements %18, %19, %20, %21, %22 : tensor<5xindex>
  %24 = tensor.reshape %17(%23) : (tensor<5x4x3xf64>, tensor<5xindex>) -> tensor<15x2x1x1x2xf64>
  %25 = arith.constant 0.000000e+00 : f64
  %26 = tensor.empty() : tensor<5x4x1x3xf64>
  %27 = linalg.fill ins(%25 : f64) outs(%26 : tensor<5x4x1x3xf64>) -> tensor<5x4x1x3xf64>
  %28 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, 0, d3)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%13 : tensor<5x4x4x3xf64>) outs(%27 : tensor<5x4x1x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<5x4x1x3xf64>
  %29 = tensor.empty() : tensor<5x4x4x3xf64>
  %30 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, 0, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13, %28 : tensor<5x4x4x3xf64>, tensor<5x4x1x3xf64>) outs(%29 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %31 = tensor.empty() : tensor<5x4x4x3xf64>
  %32 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%30 : tensor<5x4x4x3xf64>) outs(%31 : tensor<5x4x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.mulf %a, %a : f64
    linalg.yield %m : f64
  } -> tensor<5x4x4x3xf64>
  %33 = arith.constant 0.000000e+00 : f64
  %34 = tensor.empty() : tensor<5x4x3xf64>
  %35 = linalg.fill ins(%33 : f64) outs(%34 : tensor<5x4x3xf64>) -> tensor<5x4x3xf64>
  %36 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%32 : tensor<5x4x4x3xf64>) outs(%35 : tensor<5x4x3xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<5x4x3xf64>
  return %36 : tensor<5x4x3xf64>
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 3x3x4x6xf64
func.func @main(%0: tensor<?x3x4x?xf64>) -> (tensor<3x1x3x4x6xf64>) {
  %1 = arith.constant 0 : index
  %2 = tensor.dim %0, %1 : tensor<?x3x4x?xf64>
  %3 = arith.constant 3 : index
  %4 = tensor.dim %0, %3 : tensor<?x3x4x?xf64>
  %5 = arith.constant -3.000000e+30 : f64
  %6 = tensor.empty(%2) : tensor<?x3x4x1xf64>
  %7 = linalg.fill ins(%5 : f64) outs(%6 : tensor<?x3x4x1xf64>) -> tensor<?x3x4x1xf64>
  %8 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%0 : tensor<?x3x4x?xf64>) outs(%7 : tensor<?x3x4x1xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<?x3x4x1xf64>
  %9 = arith.constant 0 : index
  %10 = tensor.dim %0, %9 : tensor<?x3x4x?xf64>
  %11 = arith.constant 3 : index
  %12 = tensor.dim %0, %11 : tensor<?x3x4x?xf64>
  %13 = tensor.empty(%10, %12) : tensor<?x3x4x?xf64>
  %14 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%0, %8 : tensor<?x3x4x?xf64>, tensor<?x3x4x1xf64>) outs(%13 : tensor<?x3x4x?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x3x4x?xf64>
  %15 = arith.constant 0 : index
  %16 = tensor.dim %14, %15 : tensor<?x3x4x?xf64>
  %17 = arith.constant 3 : index
  %18 = tensor.dim %14, %17 : tensor<?x3x4x?xf64>
  %19 = tensor.empty(%16, %18) : tensor<?x3x4x?xf64>
  %20 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<?x3x4x?xf64>) outs(%19 : tensor<?x3x4x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<?x3x4x?xf64>
  %21 = arith.constant 0 : index
  %22 = tensor.dim %20, %21 : tensor<?x3x4x?xf64>
  %23 = arith.constant 3 : index
  %24 = tensor.dim %20, %23 : tensor<?x3x4x?xf64>
  %25 = arith.constant 0.000000e+00 : f64
  %26 = tensor.empty(%22) : tensor<?x3x4x1xf64>
  %27 = linalg.fill ins(%25 : f64) outs(%26 : tensor<?x3x4x1xf64>) -> tensor<?x3x4x1xf64>
  %28 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%20 : tensor<?x3x4x?xf64>) outs(%27 : tensor<?x3x4x1xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<?x3x4x1xf64>
  %29 = arith.constant 0 : index
  %30 = tensor.dim %20, %29 : tensor<?x3x4x?xf64>
  %31 = arith.constant 3 : index
  %32 = tensor.dim %20, %31 : tensor<?x3x4x?xf64>
  %33 = tensor.empty(%30, %32) : tensor<?x3x4x?xf64>
  %34 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %28 : tensor<?x3x4x?xf64>, tensor<?x3x4x1xf64>) outs(%33 : tensor<?x3x4x?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x3x4x?xf64>
  %35 = tensor.cast %34 : tensor<?x3x4x?xf64> to tensor<3x3x4x6xf64>
  %36 = tensor.expand_shape %35 [[0], [1, 2], [3], [4]] output_shape [3, 1, 3, 4, 6] : tensor<3x3x4x6xf64> into tensor<3x1x3x4x6xf64>
  %37 = arith.constant -3.000000e+30 : f64
  %38 = tensor.empty() : tensor<3x1x3x4xf64>
  %39 = linalg.fill ins(%37 : f64) outs(%38 : tensor<3x1x3x4xf64>) -> tensor<3x1x3x4xf64>
  %40 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%36 : tensor<3x1x3x4x6xf64>) outs(%39 : tensor<3x1x3x4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<3x1x3x4xf64>
  %41 = tensor.empty() : tensor<3x1x3x4x6xf64>
  %42 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%36, %40 : tensor<3x1x3x4x6xf64>, tensor<3x1x3x4xf64>) outs(%41 : tensor<3x1x3x4x6xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<3x1x3x4x6xf64>
  %43 = tensor.empty() : tensor<3x1x3x4x6xf64>
  %44 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%42 : tensor<3x1x3x4x6xf64>) outs(%43 : tensor<3x1x3x4x6xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<3x1x3x4x6xf64>
  %45 = arith.constant 0.000000e+00 : f64
  %46 = tensor.empty() : tensor<3x1x3x4xf64>
  %47 = linalg.fill ins(%45 : f64) outs(%46 : tensor<3x1x3x4xf64>) -> tensor<3x1x3x4xf64>
  %48 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%44 : tensor<3x1x3x4x6xf64>) outs(%47 : tensor<3x1x3x4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<3x1x3x4xf64>
  %49 = tensor.empty() : tensor<3x1x3x4x6xf64>
  %50 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%44, %48 : tensor<3x1x3x4x6xf64>, tensor<3x1x3x4xf64>) outs(%49 : tensor<3x1x3x4x6xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<3x1x3x4x6xf64>
  return %50 : tensor<3x1x3x4x6xf64>
}

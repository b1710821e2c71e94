// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 6x3x2xf64 1x6x3x2xf64 1x13x5x7xf64
func.func @main(%0: tensor<?x?x?xf64>, %72: tensor<1x6x?x?xf64>, %74: tensor<?x?x?x?xf64>) -> (tensor<?x?x?x?xf64>) {
  %1 = arith.constant 0 : index
  %2 = tensor.dim %0, %1 : tensor<?x?x?xf64>
  %3 = arith.constant 1 : index
  %4 = tensor.dim %0, %3 : tensor<?x?x?xf64>
  %5 = arith.constant 2 : index
  %6 = tensor.dim %0, %5 : tensor<?x?x?xf64>
  %7 = arith.constant -3.000000e+30 : f64
  %8 = tensor.empty(%2, %6) : tensor<?x1x?xf64>
  %9 = linalg.fill ins(%7 : f64) outs(%8 : tensor<?x1x?xf64>) -> tensor<?x1x?xf64>
  %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>], iterator_types = ["parallel", "reduction", "parallel"]} ins(%0 : tensor<?x?x?xf64>) outs(%9 : tensor<?x1x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.maximumf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<?x1x?xf64>
  %11 = arith.constant 0 : index
  %12 = tensor.dim %0, %11 : tensor<?x?x?xf64>
  %13 = arith.constant 1 : index
  %14 = tensor.dim %0, %13 : tensor<?x?x?xf64>
  %15 = arith.constant 2 : index
  %16 = tensor.dim %0, %15 : tensor<?x?x?xf64>
  %17 = tensor.empty(%12, %14, %16) : tensor<?x?x?xf64>
  %18 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0, %10 : tensor<?x?x?xf64>, tensor<?x1x?xf64>) outs(%17 : tensor<?x?x?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.subf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x?x?xf64>
  %19 = arith.constant 0 : index
  %20 = tensor.dim %18, %19 : tensor<?x?x?xf64>
  %21 = arith.constant 1 : index
  %22 = tensor.dim %18, %21 : tensor<?x?x?xf64>
  %23 = arith.constant 2 : index
  %24 = tensor.dim %18, %23 : tensor<?x?x?xf64>
  %25 = tensor.empty(%20, %22, %24) : tensor<?x?x?xf64>
  %26 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%18 : tensor<?x?x?xf64>) outs(%25 : tensor<?x?x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.exp %a : f64
    linalg.yield %m : f64
  } -> tensor<?x?x?xf64>
  %27 = arith.constant 0 : index
  %28 = tensor.dim %26, %27 : tensor<?x?x?xf64>
  %29 = arith.constant 1 : index
  %30 = tensor.dim %26, %29 : tensor<?x?x?xf64>
  %31 = arith.constant 2 : index
  %32 = tensor.dim %26, %31 : tensor<?x?x?xf64>
  %33 = arith.constant 0.000000e+00 : f64
  %34 = tensor.empty(%28, %32) : tensor<?x1x?xf64>
  %35 = linalg.fill ins(%33 : f64) outs(%34 : tensor<?x1x?xf64>) -> tensor<?x1x?xf64>
  %36 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>], iterator_types = ["parallel", "reduction", "parallel"]} ins(%26 : tensor<?x?x?xf64>) outs(%35 : tensor<?x1x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = arith.addf %a, %o : f64
    linalg.yield %m : f64
  } -> tensor<?x1x?xf64>
  %37 = arith.constant 0 : index
  %38 = tensor.dim %26, %37 : tensor<?x?x?xf64>
  %39 = arith.constant 1 : index
  %40 = tensor.dim %26, %39 : tensor<?x?x?xf64>
  %41 = arith.constant 2 : index
  %42 = tensor.dim %26, %41 : tensor<?x?x?xf64>
  %43 = tensor.empty(%38, %40, %42) : tensor<?x?x?xf64>
  %44 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%26, %36 : tensor<?x?x?xf64>, tensor<?x1x?xf64>) outs(%43 : tensor<?x?x?xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %m = arith.divf %a, %b : f64
    linalg.yield %m : f64
  } -> tensor<?x?x?xf64>
  %45 = arith.constant 0 : index
  %46 = tensor.dim %44, %45 : tensor<?x?x?xf64>
  %47 = arith.constant 1 : index
  %48 = tensor.dim %44, %47 : tensor<?x?x?xf64>
  %49 = arith.constant 2 : index
  %50 = tensor.dim %44, %49 : tensor<?x?x?xf64>
  %51 = tensor.empty(%46, %48, %50) : tensor<?x?x?xf64>
  %52 = arith.constant 0.000000e+00 : f64
  %53 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%44 : tensor<?x?x?xf64>) outs(%51 : tensor<?x?x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %i = linalg.index 2 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %i, %j : index
    %m = arith.select %c, %a, %52 : f64
    linalg.yield %m : f64
  } -> tensor<?x?x?xf64>
  %54 = arith.constant 0 : index
  %55 = tensor.dim %53, %54 : tensor<?x?x?xf64>
  %56 = arith.constant 0 : index
  %57 = tensor.dim %53, %56 : tensor<?x?x?xf64>
  %58 = arith.constant 1 : index
  %59 = tensor.dim %53, %58 : tensor<?x?x?xf64>
  %60 = arith.constant 2 : index
  %61 = tensor.dim %53, %60 : tensor<?x?x?xf64>
  %62 = tensor.expand_shape %53 [[0, 1], [2], [3]] output_shape [1, %55, %59, %61] : tensor<?x?x?xf64> into tensor<1x?x?x?xf64>
  %63 = arith.constant 1 : index
  %64 = tensor.dim %62, %63 : tensor<1x?x?x?xf64>
  %65 = arith.constant 2 : index
  %66 = tensor.dim %62, %65 : tensor<1x?x?x?xf64>
  %67 = arith.constant 3 : index
  %68 = tensor.dim %62, %67 : tensor<1x?x?x?xf64>
  %69 = tensor.empty(%64, %66, %68) : tensor<1x?x?x?xf64>
  %70 = arith.constant 2.000000e+00 : f64
  %71 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%62 : tensor<1x?x?x?xf64>) outs(%69 : tensor<1x?x?x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %m = math.tanh %a : f64
    linalg.yield %m : f64
  } -> tensor<1x?x?x?xf64>
  %73 = tensor.concat dim(3) %72, %71 : (tensor<1x6x?x?xf64>, tensor<1x?x?x?xf64>) -> tensor<1x6x?x?xf64>
  %75 = arith.constant 2 : index
  %76 = tensor.dim %73, %75 : tensor<1x6x?x?xf64>
  %77 = arith.constant 3 : index
  %78 = tensor.dim %73, %77 : tensor<1x6x?x?xf64>
  %79 = tensor.insert_slice %73 into %74[0, 2, 2, 0] [1, 6, %76, %78] [2, 2, 1, 2] : tensor<1x6x?x?xf64> into tensor<?x?x?x?xf64>
  return %79 : tensor<?x?x?x?xf64>
}

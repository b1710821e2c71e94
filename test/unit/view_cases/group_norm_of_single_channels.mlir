// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 6x8xf64 6x8xf64 6xf64 6xf64 6xf64 6x6xi64<6 6x6xi64<6 6x6xi64<1 6x6xi64<1
// What torch-mlir makes of a linear layer, a norm of groups of one channel and an activation.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>
#map5 = affine_map<(d0, d1) -> ()>
func.func @main(%arg0: tensor<6x8xf64>, %arg1: tensor<6x8xf64>, %arg2: tensor<6xf64>, %arg3: tensor<6xf64>, %arg4: tensor<6xf64>, %p0: tensor<6x6xi64>, %p1: tensor<6x6xi64>, %p2: tensor<6x6xi64>, %p3: tensor<6x6xi64>) -> tensor<6x6xf64> {
  %c1_i64 = arith.constant 1 : i64
  %cst = arith.constant 0.000000e+00 : f64
  %c32_i64 = arith.constant 32 : i64
  %cst_0 = arith.constant 0.000000e+00 : f64
  %c0_i64 = arith.constant 0 : i64
  %cst_1 = arith.constant dense<0.000000e+00> : tensor<f64>
  %cst_2 = arith.constant 1.000000e-02 : f64
  %cst_3 = arith.constant 1.000000e-05 : f64
  %cst_4 = arith.constant 2.000000e+00 : f64
  %0 = tensor.empty() : tensor<8x6xf64>
  %transposed = linalg.transpose ins(%arg1 : tensor<6x8xf64>) outs(%0 : tensor<8x6xf64>) permutation = [1, 0] 
  %1 = tensor.empty() : tensor<6x6xf64>
  %2 = linalg.fill ins(%cst : f64) outs(%1 : tensor<6x6xf64>) -> tensor<6x6xf64>
  %3 = linalg.matmul ins(%arg0, %transposed : tensor<6x8xf64>, tensor<8x6xf64>) outs(%2 : tensor<6x6xf64>) -> tensor<6x6xf64>
  %4 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%3, %arg2 : tensor<6x6xf64>, tensor<6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.addf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6xf64>
  %expanded = tensor.expand_shape %4 [[0], [1, 2, 3]] output_shape [6, 6, 1, 1] : tensor<6x6xf64> into tensor<6x6x1x1xf64>
  %5 = tensor.empty() : tensor<6x6x1x1xf64>
  %7 = linalg.fill ins(%cst_0 : f64) outs(%5 : tensor<6x6x1x1xf64>) -> tensor<6x6x1x1xf64>
  %8 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%expanded : tensor<6x6x1x1xf64>) outs(%7 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = arith.addf %in, %out : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %9 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %8 : tensor<6x6x1x1xf64>, tensor<6x6x1x1xf64>) outs(%5 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.subf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %10 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9, %9 : tensor<6x6x1x1xf64>, tensor<6x6x1x1xf64>) outs(%5 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.mulf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %11 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%10 : tensor<6x6x1x1xf64>) outs(%7 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = arith.addf %in, %out : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %12 = tensor.empty() : tensor<6x6x1x1xf64>
  %14 = linalg.fill ins(%cst : f64) outs(%12 : tensor<6x6x1x1xf64>) -> tensor<6x6x1x1xf64>
  %15 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%expanded : tensor<6x6x1x1xf64>) outs(%14 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = arith.addf %in, %out : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %16 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<6x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %32 = arith.addf %in, %cst_3 : f64
    linalg.yield %32 : f64
  } -> tensor<6x6x1x1xf64>
  %17 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16 : tensor<6x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = math.rsqrt %in : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %expanded_13 = tensor.expand_shape %arg3 [[0, 1, 2, 3]] output_shape [1, 6, 1, 1] : tensor<6xf64> into tensor<1x6x1x1xf64>
  %18 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17, %expanded_13 : tensor<6x6x1x1xf64>, tensor<1x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.mulf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %19 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15 : tensor<6x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = arith.negf %in : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %20 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19, %18 : tensor<6x6x1x1xf64>, tensor<6x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.mulf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %expanded_14 = tensor.expand_shape %arg4 [[0, 1, 2, 3]] output_shape [1, 6, 1, 1] : tensor<6xf64> into tensor<1x6x1x1xf64>
  %21 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %expanded_14 : tensor<6x6x1x1xf64>, tensor<1x6x1x1xf64>) outs(%12 : tensor<6x6x1x1xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.addf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6x1x1xf64>
  %22 = linalg.generic {indexing_maps = [#map, #map, #map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%p0, %p1, %p2, %p3 : tensor<6x6xi64>, tensor<6x6xi64>, tensor<6x6xi64>, tensor<6x6xi64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: i64, %in_15: i64, %in_16: i64, %in_17: i64, %out: f64):
    %31 = arith.cmpi slt, %in, %c0_i64 : i64
    %32 = arith.addi %in, %c32_i64 : i64
    %33 = arith.select %31, %32, %in : i64
    %34 = arith.index_cast %33 : i64 to index
    %35 = arith.cmpi slt, %in_15, %c0_i64 : i64
    %36 = arith.addi %in_15, %c32_i64 : i64
    %37 = arith.select %35, %36, %in_15 : i64
    %38 = arith.index_cast %37 : i64 to index
    %39 = arith.cmpi slt, %in_16, %c0_i64 : i64
    %40 = arith.addi %in_16, %c1_i64 : i64
    %41 = arith.select %39, %40, %in_16 : i64
    %42 = arith.index_cast %41 : i64 to index
    %43 = arith.cmpi slt, %in_17, %c0_i64 : i64
    %44 = arith.addi %in_17, %c1_i64 : i64
    %45 = arith.select %43, %44, %in_17 : i64
    %46 = arith.index_cast %45 : i64 to index
    %extracted = tensor.extract %18[%34, %38, %42, %46] : tensor<6x6x1x1xf64>
    linalg.yield %extracted : f64
  } -> tensor<6x6xf64>
  %23 = linalg.generic {indexing_maps = [#map, #map, #map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%p0, %p1, %p2, %p3 : tensor<6x6xi64>, tensor<6x6xi64>, tensor<6x6xi64>, tensor<6x6xi64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: i64, %in_15: i64, %in_16: i64, %in_17: i64, %out: f64):
    %31 = arith.cmpi slt, %in, %c0_i64 : i64
    %32 = arith.addi %in, %c32_i64 : i64
    %33 = arith.select %31, %32, %in : i64
    %34 = arith.index_cast %33 : i64 to index
    %35 = arith.cmpi slt, %in_15, %c0_i64 : i64
    %36 = arith.addi %in_15, %c32_i64 : i64
    %37 = arith.select %35, %36, %in_15 : i64
    %38 = arith.index_cast %37 : i64 to index
    %39 = arith.cmpi slt, %in_16, %c0_i64 : i64
    %40 = arith.addi %in_16, %c1_i64 : i64
    %41 = arith.select %39, %40, %in_16 : i64
    %42 = arith.index_cast %41 : i64 to index
    %43 = arith.cmpi slt, %in_17, %c0_i64 : i64
    %44 = arith.addi %in_17, %c1_i64 : i64
    %45 = arith.select %43, %44, %in_17 : i64
    %46 = arith.index_cast %45 : i64 to index
    %extracted = tensor.extract %21[%34, %38, %42, %46] : tensor<6x6x1x1xf64>
    linalg.yield %extracted : f64
  } -> tensor<6x6xf64>
  %24 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%4, %22 : tensor<6x6xf64>, tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.mulf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6xf64>
  %25 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%24, %23 : tensor<6x6xf64>, tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.addf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6xf64>
  %26 = linalg.generic {indexing_maps = [#map5, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%cst_1, %25 : tensor<f64>, tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.cmpf ogt, %in, %in_15 : f64
    %32 = arith.select %31, %in, %in_15 : f64
    linalg.yield %32 : f64
  } -> tensor<6x6xf64>
  %27 = linalg.generic {indexing_maps = [#map5, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%cst_1, %25 : tensor<f64>, tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.cmpf olt, %in, %in_15 : f64
    %32 = arith.select %31, %in, %in_15 : f64
    linalg.yield %32 : f64
  } -> tensor<6x6xf64>
  %28 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%27 : tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %out: f64):
    %32 = arith.mulf %in, %cst_2 : f64
    linalg.yield %32 : f64
  } -> tensor<6x6xf64>
  %29 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%26, %28 : tensor<6x6xf64>, tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %in_15: f64, %out: f64):
    %31 = arith.addf %in, %in_15 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6xf64>
  %30 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%29 : tensor<6x6xf64>) outs(%1 : tensor<6x6xf64>) {
  ^bb0(%in: f64, %out: f64):
    %31 = arith.mulf %in, %cst_4 : f64
    linalg.yield %31 : f64
  } -> tensor<6x6xf64>
  return %30 : tensor<6x6xf64>
}

// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x7x32:float32, 32x96:float32, 32x32:float32).
// kernels: 3 (the projections before and behind the attention)
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0, d1) -> (d0, d1)>
#map5 = affine_map<(d0, d1) -> ()>
#map6 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
#map9 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map10 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module {
  func.func @qkv_block(%arg0: tensor<2x7x32xf32>, %arg1: tensor<32x96xf32>, %arg2: tensor<32x32xf32>) -> tensor<2x7x32xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %true = arith.constant true
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<2x4x7x7xf32>
    %cst_2 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_4 = arith.constant dense<true> : tensor<7x7xi1>
    %cst_5 = arith.constant 0xFFF0000000000000 : f64
    %cst_6 = arith.constant 0.59460355750136051 : f64
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2]] : tensor<2x7x32xf32> into tensor<14x32xf32>
    %0 = tensor.empty() : tensor<14x96xf32>
    %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<14x96xf32>) -> tensor<14x96xf32>
    %2 = linalg.matmul ins(%collapsed, %arg1 : tensor<14x32xf32>, tensor<32x96xf32>) outs(%1 : tensor<14x96xf32>) -> tensor<14x96xf32>
    %expanded = tensor.expand_shape %2 [[0, 1], [2, 3, 4]] output_shape [2, 7, 3, 4, 8] : tensor<14x96xf32> into tensor<2x7x3x4x8xf32>
    %3 = tensor.empty() : tensor<3x2x4x7x8xf32>
    %transposed = linalg.transpose ins(%expanded : tensor<2x7x3x4x8xf32>) outs(%3 : tensor<3x2x4x7x8xf32>) permutation = [2, 0, 3, 1, 4] 
    %extracted_slice = tensor.extract_slice %transposed[0, 0, 0, 0, 0] [1, 2, 4, 7, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x7x8xf32> to tensor<1x2x4x7x8xf32>
    %extracted_slice_7 = tensor.extract_slice %transposed[1, 0, 0, 0, 0] [1, 2, 4, 7, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x7x8xf32> to tensor<1x2x4x7x8xf32>
    %extracted_slice_8 = tensor.extract_slice %transposed[2, 0, 0, 0, 0] [1, 2, 4, 7, 8] [1, 1, 1, 1, 1] : tensor<3x2x4x7x8xf32> to tensor<1x2x4x7x8xf32>
    %collapsed_9 = tensor.collapse_shape %extracted_slice [[0, 1], [2], [3], [4]] : tensor<1x2x4x7x8xf32> into tensor<2x4x7x8xf32>
    %collapsed_10 = tensor.collapse_shape %extracted_slice_7 [[0, 1], [2], [3], [4]] : tensor<1x2x4x7x8xf32> into tensor<2x4x7x8xf32>
    %4 = tensor.empty() : tensor<2x4x7x8xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%collapsed_9 : tensor<2x4x7x8xf32>) outs(%4 : tensor<2x4x7x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %48 = arith.truncf %cst_6 : f64 to f32
      %49 = arith.mulf %in, %48 : f32
      linalg.yield %49 : f32
    } -> tensor<2x4x7x8xf32>
    %6 = tensor.empty() : tensor<7xi64>
    %7 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel"]} outs(%6 : tensor<7xi64>) {
    ^bb0(%out: i64):
      %48 = linalg.index 0 : index
      %49 = arith.index_cast %48 : index to i64
      linalg.yield %49 : i64
    } -> tensor<7xi64>
    %expanded_11 = tensor.expand_shape %7 [[0, 1]] output_shape [1, 7] : tensor<7xi64> into tensor<1x7xi64>
    %expanded_12 = tensor.expand_shape %7 [[0, 1]] output_shape [7, 1] : tensor<7xi64> into tensor<7x1xi64>
    %8 = tensor.empty() : tensor<7x7xi64>
    %9 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel"]} ins(%expanded_11, %expanded_12 : tensor<1x7xi64>, tensor<7x1xi64>) outs(%8 : tensor<7x7xi64>) {
    ^bb0(%in: i64, %in_23: i64, %out: i64):
      %48 = arith.subi %in, %in_23 : i64
      linalg.yield %48 : i64
    } -> tensor<7x7xi64>
    %10 = tensor.empty() : tensor<7x7xi1>
    %11 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<7x7xi64>) outs(%10 : tensor<7x7xi1>) {
    ^bb0(%in: i64, %out: i1):
      %48 = arith.cmpi sle, %in, %c0_i64 : i64
      linalg.yield %48 : i1
    } -> tensor<7x7xi1>
    %12 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel", "parallel"]} ins(%11, %cst_4 : tensor<7x7xi1>, tensor<7x7xi1>) outs(%10 : tensor<7x7xi1>) {
    ^bb0(%in: i1, %in_23: i1, %out: i1):
      %48 = arith.andi %in, %in_23 : i1
      linalg.yield %48 : i1
    } -> tensor<7x7xi1>
    %13 = tensor.empty() : tensor<7x7xf32>
    %14 = linalg.generic {indexing_maps = [#map4, #map5, #map5, #map4], iterator_types = ["parallel", "parallel"]} ins(%12, %cst_2, %cst_3 : tensor<7x7xi1>, tensor<f32>, tensor<f32>) outs(%13 : tensor<7x7xf32>) {
    ^bb0(%in: i1, %in_23: f32, %in_24: f32, %out: f32):
      %48 = arith.select %in, %in_23, %in_24 : f32
      linalg.yield %48 : f32
    } -> tensor<7x7xf32>
    %15 = tensor.empty() : tensor<2x4x8x7xf32>
    %transposed_13 = linalg.transpose ins(%collapsed_10 : tensor<2x4x7x8xf32>) outs(%15 : tensor<2x4x8x7xf32>) permutation = [0, 1, 3, 2] 
    %16 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed_13 : tensor<2x4x8x7xf32>) outs(%15 : tensor<2x4x8x7xf32>) {
    ^bb0(%in: f32, %out: f32):
      %48 = arith.truncf %cst_6 : f64 to f32
      %49 = arith.mulf %in, %48 : f32
      linalg.yield %49 : f32
    } -> tensor<2x4x8x7xf32>
    %collapsed_14 = tensor.collapse_shape %5 [[0, 1], [2], [3]] : tensor<2x4x7x8xf32> into tensor<8x7x8xf32>
    %collapsed_15 = tensor.collapse_shape %16 [[0, 1], [2], [3]] : tensor<2x4x8x7xf32> into tensor<8x8x7xf32>
    %17 = tensor.empty() : tensor<8x7x7xf32>
    %18 = linalg.fill ins(%cst : f32) outs(%17 : tensor<8x7x7xf32>) -> tensor<8x7x7xf32>
    %19 = linalg.batch_matmul ins(%collapsed_14, %collapsed_15 : tensor<8x7x8xf32>, tensor<8x8x7xf32>) outs(%18 : tensor<8x7x7xf32>) -> tensor<8x7x7xf32>
    %expanded_16 = tensor.expand_shape %19 [[0, 1], [2], [3]] output_shape [2, 4, 7, 7] : tensor<8x7x7xf32> into tensor<2x4x7x7xf32>
    %20 = tensor.empty() : tensor<2x4x7x7xf32>
    %21 = linalg.generic {indexing_maps = [#map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_16, %14 : tensor<2x4x7x7xf32>, tensor<7x7xf32>) outs(%20 : tensor<2x4x7x7xf32>) {
    ^bb0(%in: f32, %in_23: f32, %out: f32):
      %48 = arith.addf %in, %in_23 : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x7xf32>
    %22 = tensor.empty() : tensor<2x4x7xi64>
    %23 = linalg.fill ins(%c0_i64 : i64) outs(%22 : tensor<2x4x7xi64>) -> tensor<2x4x7xi64>
    %24 = tensor.empty() : tensor<2x4x7xf32>
    %25 = linalg.fill ins(%cst_0 : f32) outs(%24 : tensor<2x4x7xf32>) -> tensor<2x4x7xf32>
    %26:2 = linalg.generic {indexing_maps = [#map, #map7, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%21 : tensor<2x4x7x7xf32>) outs(%25, %23 : tensor<2x4x7xf32>, tensor<2x4x7xi64>) {
    ^bb0(%in: f32, %out: f32, %out_23: i64):
      %48 = linalg.index 3 : index
      %49 = arith.index_cast %48 : index to i64
      %50 = arith.maximumf %in, %out : f32
      %51 = arith.cmpf ogt, %in, %out : f32
      %52 = arith.select %51, %49, %out_23 : i64
      linalg.yield %50, %52 : f32, i64
    } -> (tensor<2x4x7xf32>, tensor<2x4x7xi64>)
    %expanded_17 = tensor.expand_shape %26#0 [[0], [1], [2, 3]] output_shape [2, 4, 7, 1] : tensor<2x4x7xf32> into tensor<2x4x7x1xf32>
    %27 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21, %expanded_17 : tensor<2x4x7x7xf32>, tensor<2x4x7x1xf32>) outs(%20 : tensor<2x4x7x7xf32>) {
    ^bb0(%in: f32, %in_23: f32, %out: f32):
      %48 = arith.subf %in, %in_23 : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x7xf32>
    %28 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%27 : tensor<2x4x7x7xf32>) outs(%20 : tensor<2x4x7x7xf32>) {
    ^bb0(%in: f32, %out: f32):
      %48 = math.exp %in : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x7xf32>
    %29 = tensor.empty() : tensor<2x4x7x1xf32>
    %30 = linalg.fill ins(%cst : f32) outs(%29 : tensor<2x4x7x1xf32>) -> tensor<2x4x7x1xf32>
    %31 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%28 : tensor<2x4x7x7xf32>) outs(%30 : tensor<2x4x7x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %48 = arith.addf %in, %out : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x1xf32>
    %32 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%28, %31 : tensor<2x4x7x7xf32>, tensor<2x4x7x1xf32>) outs(%20 : tensor<2x4x7x7xf32>) {
    ^bb0(%in: f32, %in_23: f32, %out: f32):
      %48 = arith.divf %in, %in_23 : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x7xf32>
    %33 = tensor.empty() : tensor<2x4x7x7xi1>
    %34 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<2x4x7x7xf32>) outs(%33 : tensor<2x4x7x7xi1>) {
    ^bb0(%in: f32, %out: i1):
      %48 = arith.extf %in : f32 to f64
      %49 = arith.cmpf oeq, %48, %cst_5 : f64
      linalg.yield %49 : i1
    } -> tensor<2x4x7x7xi1>
    %35 = tensor.empty() : tensor<2x4x7x1xi1>
    %36 = linalg.fill ins(%true : i1) outs(%35 : tensor<2x4x7x1xi1>) -> tensor<2x4x7x1xi1>
    %37 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%34 : tensor<2x4x7x7xi1>) outs(%36 : tensor<2x4x7x1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %48 = arith.andi %in, %out : i1
      linalg.yield %48 : i1
    } -> tensor<2x4x7x1xi1>
    %38 = linalg.generic {indexing_maps = [#map8, #map, #map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%37, %cst_1, %32 : tensor<2x4x7x1xi1>, tensor<2x4x7x7xf32>, tensor<2x4x7x7xf32>) outs(%20 : tensor<2x4x7x7xf32>) {
    ^bb0(%in: i1, %in_23: f32, %in_24: f32, %out: f32):
      %48 = arith.select %in, %in_23, %in_24 : f32
      linalg.yield %48 : f32
    } -> tensor<2x4x7x7xf32>
    %collapsed_18 = tensor.collapse_shape %38 [[0, 1], [2], [3]] : tensor<2x4x7x7xf32> into tensor<8x7x7xf32>
    %collapsed_19 = tensor.collapse_shape %extracted_slice_8 [[0, 1, 2], [3], [4]] : tensor<1x2x4x7x8xf32> into tensor<8x7x8xf32>
    %39 = tensor.empty() : tensor<8x7x8xf32>
    %40 = linalg.fill ins(%cst : f32) outs(%39 : tensor<8x7x8xf32>) -> tensor<8x7x8xf32>
    %41 = linalg.batch_matmul ins(%collapsed_18, %collapsed_19 : tensor<8x7x7xf32>, tensor<8x7x8xf32>) outs(%40 : tensor<8x7x8xf32>) -> tensor<8x7x8xf32>
    %expanded_20 = tensor.expand_shape %41 [[0, 1], [2], [3]] output_shape [2, 4, 7, 8] : tensor<8x7x8xf32> into tensor<2x4x7x8xf32>
    %42 = tensor.empty() : tensor<2x7x4x8xf32>
    %transposed_21 = linalg.transpose ins(%expanded_20 : tensor<2x4x7x8xf32>) outs(%42 : tensor<2x7x4x8xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_22 = tensor.collapse_shape %transposed_21 [[0], [1], [2, 3]] : tensor<2x7x4x8xf32> into tensor<2x7x32xf32>
    %43 = tensor.empty() : tensor<2x32x32xf32>
    %44 = linalg.generic {indexing_maps = [#map9, #map10], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg2 : tensor<32x32xf32>) outs(%43 : tensor<2x32x32xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x32x32xf32>
    %45 = tensor.empty() : tensor<2x7x32xf32>
    %46 = linalg.fill ins(%cst : f32) outs(%45 : tensor<2x7x32xf32>) -> tensor<2x7x32xf32>
    %47 = linalg.batch_matmul ins(%collapsed_22, %44 : tensor<2x7x32xf32>, tensor<2x32x32xf32>) outs(%46 : tensor<2x7x32xf32>) -> tensor<2x7x32xf32>
    return %47 : tensor<2x7x32xf32>
  }
}

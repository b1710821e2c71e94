// kernels: 1
// PyTorch: logsumexp of rotary scores, x * c + cat([-b, a], -1) * s with a, b = x.chunk(2, -1)
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> ()>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0) -> (d0)>
module {
  func.func @main(%arg0: tensor<9x16xf32>, %arg1: tensor<9x16xf32>, %arg2: tensor<9x16xf32>, %arg3: tensor<9x16xf32>) -> tensor<9xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = arith.constant 0x7FF0000000000000 : f64
    %extracted_slice = tensor.extract_slice %arg0[0, 0] [9, 8] [1, 1] : tensor<9x16xf32> to tensor<9x8xf32>
    %extracted_slice_3 = tensor.extract_slice %arg0[0, 8] [9, 8] [1, 1] : tensor<9x16xf32> to tensor<9x8xf32>
    %0 = tensor.empty() : tensor<9x16xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg2 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.mulf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %2 = tensor.empty() : tensor<9x8xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%extracted_slice_3 : tensor<9x8xf32>) outs(%2 : tensor<9x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = arith.negf %in : f32
      linalg.yield %30 : f32
    } -> tensor<9x8xf32>
    %concat = tensor.concat dim(1) %3, %extracted_slice : (tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x16xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%concat, %arg3 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.mulf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %4 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.addf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %extracted_slice_4 = tensor.extract_slice %arg1[0, 0] [9, 8] [1, 1] : tensor<9x16xf32> to tensor<9x8xf32>
    %extracted_slice_5 = tensor.extract_slice %arg1[0, 8] [9, 8] [1, 1] : tensor<9x16xf32> to tensor<9x8xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg1, %arg2 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.mulf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%extracted_slice_5 : tensor<9x8xf32>) outs(%2 : tensor<9x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = arith.negf %in : f32
      linalg.yield %30 : f32
    } -> tensor<9x8xf32>
    %concat_6 = tensor.concat dim(1) %7, %extracted_slice_4 : (tensor<9x8xf32>, tensor<9x8xf32>) -> tensor<9x16xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%concat_6, %arg3 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.mulf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%6, %8 : tensor<9x16xf32>, tensor<9x16xf32>) outs(%0 : tensor<9x16xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.addf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x16xf32>
    %10 = tensor.empty() : tensor<16x9xf32>
    %transposed = linalg.transpose ins(%9 : tensor<9x16xf32>) outs(%10 : tensor<16x9xf32>) permutation = [1, 0] 
    %11 = tensor.empty() : tensor<9x9xf32>
    %12 = linalg.fill ins(%cst : f32) outs(%11 : tensor<9x9xf32>) -> tensor<9x9xf32>
    %13 = linalg.matmul ins(%5, %transposed : tensor<9x16xf32>, tensor<16x9xf32>) outs(%12 : tensor<9x9xf32>) -> tensor<9x9xf32>
    %14 = tensor.empty() : tensor<9xi64>
    %15 = linalg.fill ins(%c0_i64 : i64) outs(%14 : tensor<9xi64>) -> tensor<9xi64>
    %16 = tensor.empty() : tensor<9xf32>
    %17 = linalg.fill ins(%cst_0 : f32) outs(%16 : tensor<9xf32>) -> tensor<9xf32>
    %18:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%13 : tensor<9x9xf32>) outs(%17, %15 : tensor<9xf32>, tensor<9xi64>) {
    ^bb0(%in: f32, %out: f32, %out_7: i64):
      %30 = linalg.index 1 : index
      %31 = arith.index_cast %30 : index to i64
      %32 = arith.maximumf %in, %out : f32
      %33 = arith.cmpf ogt, %in, %out : f32
      %34 = arith.select %33, %31, %out_7 : i64
      linalg.yield %32, %34 : f32, i64
    } -> (tensor<9xf32>, tensor<9xi64>)
    %expanded = tensor.expand_shape %18#0 [[0, 1]] output_shape [9, 1] : tensor<9xf32> into tensor<9x1xf32>
    %19 = tensor.empty() : tensor<9x1xf32>
    %20 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%expanded : tensor<9x1xf32>) outs(%19 : tensor<9x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = math.absf %in : f32
      linalg.yield %30 : f32
    } -> tensor<9x1xf32>
    %21 = tensor.empty() : tensor<9x1xi1>
    %22 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%20 : tensor<9x1xf32>) outs(%21 : tensor<9x1xi1>) {
    ^bb0(%in: f32, %out: i1):
      %30 = arith.extf %in : f32 to f64
      %31 = arith.cmpf oeq, %30, %cst_2 : f64
      linalg.yield %31 : i1
    } -> tensor<9x1xi1>
    %23 = linalg.generic {indexing_maps = [#map, #map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%22, %cst_1, %expanded : tensor<9x1xi1>, tensor<f32>, tensor<9x1xf32>) outs(%19 : tensor<9x1xf32>) {
    ^bb0(%in: i1, %in_7: f32, %in_8: f32, %out: f32):
      %30 = arith.select %in, %in_7, %in_8 : f32
      linalg.yield %30 : f32
    } -> tensor<9x1xf32>
    %collapsed = tensor.collapse_shape %23 [[0, 1]] : tensor<9x1xf32> into tensor<9xf32>
    %24 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%13, %23 : tensor<9x9xf32>, tensor<9x1xf32>) outs(%11 : tensor<9x9xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.subf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9x9xf32>
    %25 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%24 : tensor<9x9xf32>) outs(%11 : tensor<9x9xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = math.exp %in : f32
      linalg.yield %30 : f32
    } -> tensor<9x9xf32>
    %26 = linalg.fill ins(%cst : f32) outs(%16 : tensor<9xf32>) -> tensor<9xf32>
    %27 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%25 : tensor<9x9xf32>) outs(%26 : tensor<9xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = arith.addf %in, %out : f32
      linalg.yield %30 : f32
    } -> tensor<9xf32>
    %28 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel"]} ins(%27 : tensor<9xf32>) outs(%16 : tensor<9xf32>) {
    ^bb0(%in: f32, %out: f32):
      %30 = math.log %in : f32
      linalg.yield %30 : f32
    } -> tensor<9xf32>
    %29 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel"]} ins(%28, %collapsed : tensor<9xf32>, tensor<9xf32>) outs(%16 : tensor<9xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %30 = arith.addf %in, %in_7 : f32
      linalg.yield %30 : f32
    } -> tensor<9xf32>
    return %29 : tensor<9xf32>
  }
}

// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x1x16:float32, 2x2x11x16:float32, 2x2x11x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<()[s0] -> (s0 * 4)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
#map5 = affine_map<(d0, d1, d2, d3) -> ()>
module {
  func.func @decode_dynamic(%arg0: tensor<?x4x1x16xf32>, %arg1: tensor<?x2x?x16xf32>, %arg2: tensor<?x2x?x16xf32>) -> tensor<?x4x1x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %c4_i64 = arith.constant 4 : i64
    %c1 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c2 = arith.constant 2 : index
    %c16_i64 = arith.constant 16 : i64
    %c1_i64 = arith.constant 1 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %true = arith.constant true
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = arith.constant 0xFFF0000000000000 : f64
    %cst_3 = arith.constant 5.000000e-01 : f32
    %c64_i64 = arith.constant 64 : i64
    %dim = tensor.dim %arg2, %c0 : tensor<?x2x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_4 = tensor.dim %arg2, %c2 : tensor<?x2x?x16xf32>
    %1 = arith.index_cast %dim_4 : index to i64
    %dim_5 = tensor.dim %arg0, %c0 : tensor<?x4x1x16xf32>
    %2 = tensor.empty(%dim_5) : tensor<?x4x1x16xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<?x4x1x16xf32>) outs(%2 : tensor<?x4x1x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %108 = arith.mulf %in, %cst_3 : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x16xf32>
    %dim_6 = tensor.dim %arg1, %c0 : tensor<?x2x?x16xf32>
    %dim_7 = tensor.dim %arg1, %c2 : tensor<?x2x?x16xf32>
    %expanded = tensor.expand_shape %arg1 [[0], [1], [2, 3], [4]] output_shape [%dim_6, 2, 1, %dim_7, 16] : tensor<?x2x?x16xf32> into tensor<?x2x1x?x16xf32>
    %4 = arith.cmpi sge, %0, %c0_i64 : i64
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %5 = arith.cmpi sge, %1, %c0_i64 : i64
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %6 = tensor.empty(%dim, %dim_4) : tensor<?x2x2x?x16xf32>
    %7 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} outs(%6 : tensor<?x2x2x?x16xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 3 : index
      %111 = linalg.index 4 : index
      %112 = arith.cmpi eq, %dim_6, %c1 : index
      %113 = arith.select %112, %c0, %108 : index
      %114 = arith.cmpi eq, %dim_7, %c1 : index
      %115 = arith.select %114, %c0, %110 : index
      %extracted = tensor.extract %expanded[%113, %109, %c0, %115, %111] : tensor<?x2x1x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x2x2x?x16xf32>
    %8 = arith.cmpi slt, %0, %c0_i64 : i64
    %9 = arith.select %8, %c1_i64, %0 : i64
    %10 = arith.extui %8 : i1 to i64
    %11 = arith.muli %9, %c4_i64 : i64
    %12 = arith.muli %11, %1 : i64
    %13 = arith.addi %10, %c1_i64 : i64
    %14 = arith.cmpi slt, %1, %c0_i64 : i64
    %15 = arith.select %14, %11, %12 : i64
    %16 = arith.select %14, %13, %10 : i64
    %17 = arith.muli %15, %c16_i64 : i64
    %18 = arith.cmpi sle, %16, %c1_i64 : i64
    cf.assert %18, "must have at most one inferred (negative) dimension"
    %19 = arith.muli %0, %c4_i64 : i64
    %20 = arith.muli %19, %1 : i64
    %21 = arith.muli %20, %c16_i64 : i64
    %22 = arith.divsi %21, %17 : i64
    %23 = arith.select %8, %22, %0 : i64
    %24 = arith.select %14, %22, %1 : i64
    %from_elements = tensor.from_elements %23, %c4_i64, %24, %c16_i64 : tensor<4xi64>
    %reshape = tensor.reshape %7(%from_elements) : (tensor<?x2x2x?x16xf32>, tensor<4xi64>) -> tensor<?x4x?x16xf32>
    %expanded_8 = tensor.expand_shape %arg2 [[0], [1], [2, 3], [4]] output_shape [%dim, 2, 1, %dim_4, 16] : tensor<?x2x?x16xf32> into tensor<?x2x1x?x16xf32>
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %25 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} outs(%6 : tensor<?x2x2x?x16xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 3 : index
      %111 = linalg.index 4 : index
      %112 = arith.cmpi eq, %dim, %c1 : index
      %113 = arith.select %112, %c0, %108 : index
      %114 = arith.cmpi eq, %dim_4, %c1 : index
      %115 = arith.select %114, %c0, %110 : index
      %extracted = tensor.extract %expanded_8[%113, %109, %c0, %115, %111] : tensor<?x2x1x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x2x2x?x16xf32>
    cf.assert %18, "must have at most one inferred (negative) dimension"
    %reshape_9 = tensor.reshape %25(%from_elements) : (tensor<?x2x2x?x16xf32>, tensor<4xi64>) -> tensor<?x4x?x16xf32>
    %26 = arith.index_cast %23 : i64 to index
    %27 = arith.index_cast %24 : i64 to index
    %28 = tensor.empty(%26, %27) : tensor<?x4x16x?xf32>
    %transposed = linalg.transpose ins(%reshape : tensor<?x4x?x16xf32>) outs(%28 : tensor<?x4x16x?xf32>) permutation = [0, 1, 3, 2] 
    %29 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed : tensor<?x4x16x?xf32>) outs(%28 : tensor<?x4x16x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %108 = arith.mulf %in, %cst_3 : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x16x?xf32>
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %30 = tensor.empty(%dim) : tensor<?x4x1x16xf32>
    %31 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%30 : tensor<?x4x1x16xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 3 : index
      %111 = arith.cmpi eq, %dim_5, %c1 : index
      %112 = arith.select %111, %c0, %108 : index
      %extracted = tensor.extract %3[%112, %109, %c0, %110] : tensor<?x4x1x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x1x16xf32>
    %collapsed = tensor.collapse_shape %31 [[0, 1], [2], [3]] : tensor<?x4x1x16xf32> into tensor<?x1x16xf32>
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %32 = tensor.empty(%dim, %dim_4) : tensor<?x4x16x?xf32>
    %33 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%32 : tensor<?x4x16x?xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 2 : index
      %111 = linalg.index 3 : index
      %112 = arith.cmpi eq, %26, %c1 : index
      %113 = arith.select %112, %c0, %108 : index
      %114 = arith.cmpi eq, %27, %c1 : index
      %115 = arith.select %114, %c0, %111 : index
      %extracted = tensor.extract %29[%113, %109, %110, %115] : tensor<?x4x16x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x16x?xf32>
    %34 = arith.cmpi slt, %19, %c0_i64 : i64
    %35 = arith.select %34, %c1_i64, %19 : i64
    %36 = arith.extui %34 : i1 to i64
    %37 = arith.muli %35, %c16_i64 : i64
    %38 = arith.muli %37, %1 : i64
    %39 = arith.addi %36, %c1_i64 : i64
    %40 = arith.select %14, %37, %38 : i64
    %41 = arith.select %14, %39, %36 : i64
    %42 = arith.cmpi sle, %41, %c1_i64 : i64
    cf.assert %42, "must have at most one inferred (negative) dimension"
    %43 = arith.muli %0, %c64_i64 : i64
    %44 = arith.muli %43, %1 : i64
    %45 = arith.divsi %44, %40 : i64
    %46 = arith.select %34, %45, %19 : i64
    %47 = arith.select %14, %45, %1 : i64
    %from_elements_10 = tensor.from_elements %46, %c16_i64, %47 : tensor<3xi64>
    %reshape_11 = tensor.reshape %33(%from_elements_10) : (tensor<?x4x16x?xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %48 = affine.apply #map2()[%dim]
    %49 = arith.index_cast %47 : i64 to index
    %50 = arith.index_cast %48 : index to i64
    %51 = arith.cmpi eq, %50, %46 : i64
    cf.assert %51, "mismatching contracting dimension"
    %52 = tensor.empty(%48, %49) : tensor<?x1x?xf32>
    %53 = linalg.fill ins(%cst : f32) outs(%52 : tensor<?x1x?xf32>) -> tensor<?x1x?xf32>
    %54 = linalg.batch_matmul ins(%collapsed, %reshape_11 : tensor<?x1x16xf32>, tensor<?x16x?xf32>) outs(%53 : tensor<?x1x?xf32>) -> tensor<?x1x?xf32>
    cf.assert %18, "must have at most one inferred (negative) dimension"
    %55 = arith.muli %50, %47 : i64
    %56 = arith.divsi %55, %15 : i64
    %57 = arith.select %8, %56, %0 : i64
    %58 = arith.select %14, %56, %1 : i64
    %from_elements_12 = tensor.from_elements %57, %c4_i64, %c1_i64, %58 : tensor<4xi64>
    %reshape_13 = tensor.reshape %54(%from_elements_12) : (tensor<?x1x?xf32>, tensor<4xi64>) -> tensor<?x4x1x?xf32>
    %59 = arith.index_cast %57 : i64 to index
    %60 = tensor.empty(%59) : tensor<?x4x1xi64>
    %61 = linalg.fill ins(%c0_i64 : i64) outs(%60 : tensor<?x4x1xi64>) -> tensor<?x4x1xi64>
    %62 = tensor.empty(%59) : tensor<?x4x1xf32>
    %63 = linalg.fill ins(%cst_0 : f32) outs(%62 : tensor<?x4x1xf32>) -> tensor<?x4x1xf32>
    %64:2 = linalg.generic {indexing_maps = [#map, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%reshape_13 : tensor<?x4x1x?xf32>) outs(%63, %61 : tensor<?x4x1xf32>, tensor<?x4x1xi64>) {
    ^bb0(%in: f32, %out: f32, %out_20: i64):
      %108 = linalg.index 3 : index
      %109 = arith.index_cast %108 : index to i64
      %110 = arith.maximumf %in, %out : f32
      %111 = arith.cmpf ogt, %in, %out : f32
      %112 = arith.select %111, %109, %out_20 : i64
      linalg.yield %110, %112 : f32, i64
    } -> (tensor<?x4x1xf32>, tensor<?x4x1xi64>)
    %expanded_14 = tensor.expand_shape %64#0 [[0], [1], [2, 3]] output_shape [%59, 4, 1, 1] : tensor<?x4x1xf32> into tensor<?x4x1x1xf32>
    %65 = arith.index_cast %58 : i64 to index
    %66 = tensor.empty(%59, %65) : tensor<?x4x1x?xf32>
    %67 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_13, %expanded_14 : tensor<?x4x1x?xf32>, tensor<?x4x1x1xf32>) outs(%66 : tensor<?x4x1x?xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %108 = arith.subf %in, %in_20 : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x?xf32>
    %68 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%67 : tensor<?x4x1x?xf32>) outs(%66 : tensor<?x4x1x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %108 = math.exp %in : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x?xf32>
    %69 = tensor.empty(%59) : tensor<?x4x1x1xf32>
    %70 = linalg.fill ins(%cst : f32) outs(%69 : tensor<?x4x1x1xf32>) -> tensor<?x4x1x1xf32>
    %71 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%68 : tensor<?x4x1x?xf32>) outs(%70 : tensor<?x4x1x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %108 = arith.addf %in, %out : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x1xf32>
    %72 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%68, %71 : tensor<?x4x1x?xf32>, tensor<?x4x1x1xf32>) outs(%66 : tensor<?x4x1x?xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %108 = arith.divf %in, %in_20 : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x?xf32>
    %73 = tensor.empty(%59, %65) : tensor<?x4x1x?xi1>
    %74 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_13 : tensor<?x4x1x?xf32>) outs(%73 : tensor<?x4x1x?xi1>) {
    ^bb0(%in: f32, %out: i1):
      %108 = arith.extf %in : f32 to f64
      %109 = arith.cmpf oeq, %108, %cst_2 : f64
      linalg.yield %109 : i1
    } -> tensor<?x4x1x?xi1>
    %75 = tensor.empty(%59) : tensor<?x4x1x1xi1>
    %76 = linalg.fill ins(%true : i1) outs(%75 : tensor<?x4x1x1xi1>) -> tensor<?x4x1x1xi1>
    %77 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%74 : tensor<?x4x1x?xi1>) outs(%76 : tensor<?x4x1x1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %108 = arith.andi %in, %out : i1
      linalg.yield %108 : i1
    } -> tensor<?x4x1x1xi1>
    %78 = arith.cmpi sge, %57, %c0_i64 : i64
    cf.assert %78, "negative values not allowed in new dimensions"
    %79 = arith.index_cast %57 : i64 to index
    %80 = arith.cmpi sge, %58, %c0_i64 : i64
    cf.assert %80, "negative values not allowed in new dimensions"
    %81 = arith.index_cast %58 : i64 to index
    %82 = tensor.empty(%79, %81) : tensor<?x4x1x?xf32>
    %83 = linalg.generic {indexing_maps = [#map5, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_1 : tensor<f32>) outs(%82 : tensor<?x4x1x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<?x4x1x?xf32>
    %84 = arith.cmpi eq, %59, %79 : index
    cf.assert %84, "mismatched size for broadcast"
    %85 = arith.cmpi eq, %81, %65 : index
    cf.assert %85, "mismatched size for broadcast"
    %86 = tensor.empty(%59, %81) : tensor<?x4x1x?xf32>
    %87 = linalg.generic {indexing_maps = [#map4, #map, #map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%77, %83, %72 : tensor<?x4x1x1xi1>, tensor<?x4x1x?xf32>, tensor<?x4x1x?xf32>) outs(%86 : tensor<?x4x1x?xf32>) {
    ^bb0(%in: i1, %in_20: f32, %in_21: f32, %out: f32):
      %108 = arith.select %in, %in_20, %in_21 : f32
      linalg.yield %108 : f32
    } -> tensor<?x4x1x?xf32>
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %88 = tensor.empty(%dim, %dim_4) : tensor<?x4x1x?xf32>
    %89 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%88 : tensor<?x4x1x?xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 3 : index
      %111 = arith.cmpi eq, %59, %c1 : index
      %112 = arith.select %111, %c0, %108 : index
      %113 = arith.cmpi eq, %81, %c1 : index
      %114 = arith.select %113, %c0, %110 : index
      %extracted = tensor.extract %87[%112, %109, %c0, %114] : tensor<?x4x1x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x1x?xf32>
    %90 = arith.muli %35, %1 : i64
    %91 = arith.select %14, %35, %90 : i64
    cf.assert %42, "must have at most one inferred (negative) dimension"
    %92 = arith.divsi %20, %91 : i64
    %93 = arith.select %34, %92, %19 : i64
    %94 = arith.select %14, %92, %1 : i64
    %from_elements_15 = tensor.from_elements %93, %c1_i64, %94 : tensor<3xi64>
    %reshape_16 = tensor.reshape %89(%from_elements_15) : (tensor<?x4x1x?xf32>, tensor<3xi64>) -> tensor<?x1x?xf32>
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %95 = tensor.empty(%dim, %dim_4) : tensor<?x4x?x16xf32>
    %96 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%95 : tensor<?x4x?x16xf32>) {
    ^bb0(%out: f32):
      %108 = linalg.index 0 : index
      %109 = linalg.index 1 : index
      %110 = linalg.index 2 : index
      %111 = linalg.index 3 : index
      %112 = arith.cmpi eq, %26, %c1 : index
      %113 = arith.select %112, %c0, %108 : index
      %114 = arith.cmpi eq, %27, %c1 : index
      %115 = arith.select %114, %c0, %110 : index
      %extracted = tensor.extract %reshape_9[%113, %109, %115, %111] : tensor<?x4x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x?x16xf32>
    %97 = arith.muli %91, %c16_i64 : i64
    cf.assert %42, "must have at most one inferred (negative) dimension"
    %98 = arith.divsi %21, %97 : i64
    %99 = arith.select %34, %98, %19 : i64
    %100 = arith.select %14, %98, %1 : i64
    %from_elements_17 = tensor.from_elements %99, %100, %c16_i64 : tensor<3xi64>
    %reshape_18 = tensor.reshape %96(%from_elements_17) : (tensor<?x4x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %101 = arith.index_cast %93 : i64 to index
    %102 = arith.cmpi eq, %93, %99 : i64
    cf.assert %102, "mismatching contracting dimension"
    %103 = arith.cmpi eq, %94, %100 : i64
    cf.assert %103, "mismatching contracting dimension"
    %104 = tensor.empty(%101) : tensor<?x1x16xf32>
    %105 = linalg.fill ins(%cst : f32) outs(%104 : tensor<?x1x16xf32>) -> tensor<?x1x16xf32>
    %106 = linalg.batch_matmul ins(%reshape_16, %reshape_18 : tensor<?x1x?xf32>, tensor<?x?x16xf32>) outs(%105 : tensor<?x1x16xf32>) -> tensor<?x1x16xf32>
    %107 = arith.divsi %101, %c4 : index
    %expanded_19 = tensor.expand_shape %106 [[0, 1], [2], [3]] output_shape [%107, 4, 1, 16] : tensor<?x1x16xf32> into tensor<?x4x1x16xf32>
    return %expanded_19 : tensor<?x4x1x16xf32>
  }
}

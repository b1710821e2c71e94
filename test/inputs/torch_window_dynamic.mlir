// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x7x16:float32, 2x4x7x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0, d1) -> (d0, d1)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map6 = affine_map<(d0, d1, d2, d3) -> ()>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @window_dynamic(%arg0: tensor<?x?x?x16xf32>, %arg1: tensor<?x?x?x16xf32>, %arg2: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
    %c4_i64 = arith.constant 4 : i64
    %c0_i64 = arith.constant 0 : i64
    %c1_i64 = arith.constant 1 : i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c16_i64 = arith.constant 16 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<-1.000000e+09> : tensor<f32>
    %cst_2 = arith.constant 2.500000e-01 : f32
    %dim = tensor.dim %arg0, %c1 : tensor<?x?x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_3 = tensor.dim %arg2, %c0 : tensor<?x?x?x16xf32>
    %1 = arith.index_cast %dim_3 : index to i64
    %dim_4 = tensor.dim %arg2, %c2 : tensor<?x?x?x16xf32>
    %2 = arith.index_cast %dim_4 : index to i64
    %dim_5 = tensor.dim %arg1, %c0 : tensor<?x?x?x16xf32>
    %dim_6 = tensor.dim %arg1, %c1 : tensor<?x?x?x16xf32>
    %dim_7 = tensor.dim %arg1, %c2 : tensor<?x?x?x16xf32>
    %3 = tensor.empty(%dim_5, %dim_6, %dim_7) : tensor<?x?x16x?xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<?x?x?x16xf32>) outs(%3 : tensor<?x?x16x?xf32>) permutation = [0, 1, 3, 2] 
    %4 = arith.muli %1, %0 : i64
    %5 = arith.cmpi sge, %1, %c0_i64 : i64
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    %6 = arith.cmpi sge, %0, %c0_i64 : i64
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    %7 = arith.cmpi sge, %2, %c0_i64 : i64
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %8 = tensor.empty(%dim_3, %dim, %dim_4) : tensor<?x?x?x16xf32>
    %9 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%8 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %119 = linalg.index 0 : index
      %120 = linalg.index 1 : index
      %121 = linalg.index 2 : index
      %122 = linalg.index 3 : index
      %dim_19 = tensor.dim %arg0, %c0 : tensor<?x?x?x16xf32>
      %123 = arith.cmpi eq, %dim_19, %c1 : index
      %124 = arith.select %123, %c0, %119 : index
      %125 = arith.cmpi eq, %dim, %c1 : index
      %126 = arith.select %125, %c0, %120 : index
      %dim_20 = tensor.dim %arg0, %c2 : tensor<?x?x?x16xf32>
      %127 = arith.cmpi eq, %dim_20, %c1 : index
      %128 = arith.select %127, %c0, %121 : index
      %extracted = tensor.extract %arg0[%124, %126, %128, %122] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    %10 = arith.cmpi slt, %4, %c0_i64 : i64
    %11 = arith.select %10, %c1_i64, %4 : i64
    %12 = arith.extui %10 : i1 to i64
    %13 = arith.muli %11, %2 : i64
    %14 = arith.addi %12, %c1_i64 : i64
    %15 = arith.cmpi slt, %2, %c0_i64 : i64
    %16 = arith.select %15, %11, %13 : i64
    %17 = arith.select %15, %14, %12 : i64
    %18 = arith.muli %16, %c16_i64 : i64
    %19 = arith.cmpi sle, %17, %c1_i64 : i64
    cf.assert %19, "must have at most one inferred (negative) dimension"
    %20 = arith.muli %4, %2 : i64
    %21 = arith.muli %20, %c16_i64 : i64
    %22 = arith.divsi %21, %18 : i64
    %23 = arith.select %10, %22, %4 : i64
    %24 = arith.select %15, %22, %2 : i64
    %from_elements = tensor.from_elements %23, %24, %c16_i64 : tensor<3xi64>
    %reshape = tensor.reshape %9(%from_elements) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %25 = tensor.empty(%dim_3, %dim, %dim_4) : tensor<?x?x16x?xf32>
    %26 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%25 : tensor<?x?x16x?xf32>) {
    ^bb0(%out: f32):
      %119 = linalg.index 0 : index
      %120 = linalg.index 1 : index
      %121 = linalg.index 2 : index
      %122 = linalg.index 3 : index
      %123 = arith.cmpi eq, %dim_5, %c1 : index
      %124 = arith.select %123, %c0, %119 : index
      %125 = arith.cmpi eq, %dim_6, %c1 : index
      %126 = arith.select %125, %c0, %120 : index
      %127 = arith.cmpi eq, %dim_7, %c1 : index
      %128 = arith.select %127, %c0, %122 : index
      %extracted = tensor.extract %transposed[%124, %126, %121, %128] : tensor<?x?x16x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x16x?xf32>
    %27 = arith.muli %11, %c16_i64 : i64
    %28 = arith.muli %27, %2 : i64
    %29 = arith.select %15, %27, %28 : i64
    cf.assert %19, "must have at most one inferred (negative) dimension"
    %30 = arith.muli %4, %c16_i64 : i64
    %31 = arith.muli %30, %2 : i64
    %32 = arith.divsi %31, %29 : i64
    %33 = arith.select %10, %32, %4 : i64
    %34 = arith.select %15, %32, %2 : i64
    %from_elements_8 = tensor.from_elements %33, %c16_i64, %34 : tensor<3xi64>
    %reshape_9 = tensor.reshape %26(%from_elements_8) : (tensor<?x?x16x?xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %35 = arith.index_cast %23 : i64 to index
    %36 = arith.index_cast %24 : i64 to index
    %37 = arith.index_cast %34 : i64 to index
    %38 = arith.cmpi eq, %23, %33 : i64
    cf.assert %38, "mismatching contracting dimension"
    %39 = tensor.empty(%35, %36, %37) : tensor<?x?x?xf32>
    %40 = linalg.fill ins(%cst : f32) outs(%39 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %41 = linalg.batch_matmul ins(%reshape, %reshape_9 : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%40 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %42 = arith.cmpi slt, %1, %c0_i64 : i64
    %43 = arith.select %42, %c1_i64, %1 : i64
    %44 = arith.extui %42 : i1 to i64
    %45 = arith.muli %43, %0 : i64
    %46 = arith.addi %44, %c1_i64 : i64
    %47 = arith.cmpi slt, %0, %c0_i64 : i64
    %48 = arith.select %47, %43, %45 : i64
    %49 = arith.select %47, %46, %44 : i64
    %50 = arith.muli %48, %2 : i64
    %51 = arith.addi %49, %c1_i64 : i64
    %52 = arith.select %15, %48, %50 : i64
    %53 = arith.select %15, %51, %49 : i64
    %54 = arith.muli %52, %2 : i64
    %55 = arith.addi %53, %c1_i64 : i64
    %56 = arith.select %15, %48, %54 : i64
    %57 = arith.select %15, %55, %49 : i64
    %58 = arith.cmpi sle, %57, %c1_i64 : i64
    cf.assert %58, "must have at most one inferred (negative) dimension"
    %59 = arith.muli %23, %24 : i64
    %60 = arith.muli %59, %34 : i64
    %61 = arith.divsi %60, %56 : i64
    %62 = arith.select %42, %61, %1 : i64
    %63 = arith.select %47, %61, %0 : i64
    %64 = arith.select %15, %61, %2 : i64
    %from_elements_10 = tensor.from_elements %62, %63, %64, %64 : tensor<4xi64>
    %reshape_11 = tensor.reshape %41(%from_elements_10) : (tensor<?x?x?xf32>, tensor<4xi64>) -> tensor<?x?x?x?xf32>
    %65 = arith.index_cast %62 : i64 to index
    %66 = arith.index_cast %63 : i64 to index
    %67 = arith.index_cast %64 : i64 to index
    %68 = tensor.empty(%65, %66, %67, %67) : tensor<?x?x?x?xf32>
    %69 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_11 : tensor<?x?x?x?xf32>) outs(%68 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %119 = arith.mulf %in, %cst_2 : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x?xf32>
    %70 = tensor.empty(%dim_4) : tensor<?xi64>
    %71 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel"]} outs(%70 : tensor<?xi64>) {
    ^bb0(%out: i64):
      %119 = linalg.index 0 : index
      %120 = arith.index_cast %119 : index to i64
      linalg.yield %120 : i64
    } -> tensor<?xi64>
    %expanded = tensor.expand_shape %71 [[0, 1]] output_shape [%dim_4, 1] : tensor<?xi64> into tensor<?x1xi64>
    %expanded_12 = tensor.expand_shape %71 [[0, 1]] output_shape [1, %dim_4] : tensor<?xi64> into tensor<1x?xi64>
    %72 = tensor.empty(%dim_4, %dim_4) : tensor<?x?xi1>
    %73 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel"]} ins(%expanded_12, %expanded : tensor<1x?xi64>, tensor<?x1xi64>) outs(%72 : tensor<?x?xi1>) {
    ^bb0(%in: i64, %in_19: i64, %out: i1):
      %119 = arith.cmpi sle, %in, %in_19 : i64
      linalg.yield %119 : i1
    } -> tensor<?x?xi1>
    %74 = tensor.empty(%dim_4, %dim_4) : tensor<?x?xi64>
    %75 = linalg.generic {indexing_maps = [#map3, #map2, #map4], iterator_types = ["parallel", "parallel"]} ins(%expanded, %expanded_12 : tensor<?x1xi64>, tensor<1x?xi64>) outs(%74 : tensor<?x?xi64>) {
    ^bb0(%in: i64, %in_19: i64, %out: i64):
      %119 = arith.subi %in, %in_19 : i64
      linalg.yield %119 : i64
    } -> tensor<?x?xi64>
    %76 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel"]} ins(%75 : tensor<?x?xi64>) outs(%72 : tensor<?x?xi1>) {
    ^bb0(%in: i64, %out: i1):
      %119 = arith.cmpi slt, %in, %c4_i64 : i64
      linalg.yield %119 : i1
    } -> tensor<?x?xi1>
    %77 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel", "parallel"]} ins(%73, %76 : tensor<?x?xi1>, tensor<?x?xi1>) outs(%72 : tensor<?x?xi1>) {
    ^bb0(%in: i1, %in_19: i1, %out: i1):
      %119 = arith.andi %in, %in_19 : i1
      linalg.yield %119 : i1
    } -> tensor<?x?xi1>
    %78 = arith.cmpi eq, %dim_4, %67 : index
    cf.assert %78, "mismatched size for broadcast"
    cf.assert %78, "mismatched size for broadcast"
    %79 = tensor.empty(%65, %66, %dim_4, %dim_4) : tensor<?x?x?x?xf32>
    %80 = linalg.generic {indexing_maps = [#map5, #map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%77, %69, %cst_1 : tensor<?x?xi1>, tensor<?x?x?x?xf32>, tensor<f32>) outs(%79 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: i1, %in_19: f32, %in_20: f32, %out: f32):
      %119 = arith.select %in, %in_19, %in_20 : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x?xf32>
    %81 = tensor.empty(%65, %66, %dim_4) : tensor<?x?x?xi64>
    %82 = linalg.fill ins(%c0_i64 : i64) outs(%81 : tensor<?x?x?xi64>) -> tensor<?x?x?xi64>
    %83 = tensor.empty(%65, %66, %dim_4) : tensor<?x?x?xf32>
    %84 = linalg.fill ins(%cst_0 : f32) outs(%83 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %85:2 = linalg.generic {indexing_maps = [#map, #map7, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%80 : tensor<?x?x?x?xf32>) outs(%84, %82 : tensor<?x?x?xf32>, tensor<?x?x?xi64>) {
    ^bb0(%in: f32, %out: f32, %out_19: i64):
      %119 = linalg.index 3 : index
      %120 = arith.index_cast %119 : index to i64
      %121 = arith.maximumf %in, %out : f32
      %122 = arith.cmpf ogt, %in, %out : f32
      %123 = arith.select %122, %120, %out_19 : i64
      linalg.yield %121, %123 : f32, i64
    } -> (tensor<?x?x?xf32>, tensor<?x?x?xi64>)
    %expanded_13 = tensor.expand_shape %85#0 [[0], [1], [2, 3]] output_shape [%65, %66, %dim_4, 1] : tensor<?x?x?xf32> into tensor<?x?x?x1xf32>
    %86 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%80, %expanded_13 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%79 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_19: f32, %out: f32):
      %119 = arith.subf %in, %in_19 : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x?xf32>
    %87 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%86 : tensor<?x?x?x?xf32>) outs(%79 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %119 = math.exp %in : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x?xf32>
    %88 = tensor.empty(%65, %66, %dim_4) : tensor<?x?x?x1xf32>
    %89 = linalg.fill ins(%cst : f32) outs(%88 : tensor<?x?x?x1xf32>) -> tensor<?x?x?x1xf32>
    %90 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%87 : tensor<?x?x?x?xf32>) outs(%89 : tensor<?x?x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %119 = arith.addf %in, %out : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x1xf32>
    %91 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%87, %90 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%79 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_19: f32, %out: f32):
      %119 = arith.divf %in, %in_19 : f32
      linalg.yield %119 : f32
    } -> tensor<?x?x?x?xf32>
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %92 = tensor.empty(%dim_3, %dim, %dim_4, %dim_4) : tensor<?x?x?x?xf32>
    %93 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%92 : tensor<?x?x?x?xf32>) {
    ^bb0(%out: f32):
      %119 = linalg.index 0 : index
      %120 = linalg.index 1 : index
      %121 = linalg.index 2 : index
      %122 = linalg.index 3 : index
      %123 = arith.cmpi eq, %65, %c1 : index
      %124 = arith.select %123, %c0, %119 : index
      %125 = arith.cmpi eq, %66, %c1 : index
      %126 = arith.select %125, %c0, %120 : index
      %127 = arith.cmpi eq, %dim_4, %c1 : index
      %128 = arith.select %127, %c0, %121 : index
      %129 = arith.select %127, %c0, %122 : index
      %extracted = tensor.extract %91[%124, %126, %128, %129] : tensor<?x?x?x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x?xf32>
    %94 = arith.muli %16, %2 : i64
    %95 = arith.addi %17, %c1_i64 : i64
    %96 = arith.select %15, %11, %94 : i64
    %97 = arith.select %15, %95, %12 : i64
    %98 = arith.cmpi sle, %97, %c1_i64 : i64
    cf.assert %98, "must have at most one inferred (negative) dimension"
    %99 = arith.muli %20, %2 : i64
    %100 = arith.divsi %99, %96 : i64
    %101 = arith.select %10, %100, %4 : i64
    %102 = arith.select %15, %100, %2 : i64
    %from_elements_14 = tensor.from_elements %101, %102, %102 : tensor<3xi64>
    %reshape_15 = tensor.reshape %93(%from_elements_14) : (tensor<?x?x?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    cf.assert %5, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %103 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%8 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %119 = linalg.index 0 : index
      %120 = linalg.index 1 : index
      %121 = linalg.index 2 : index
      %122 = linalg.index 3 : index
      %123 = arith.cmpi eq, %dim_3, %c1 : index
      %124 = arith.select %123, %c0, %119 : index
      %dim_19 = tensor.dim %arg2, %c1 : tensor<?x?x?x16xf32>
      %125 = arith.cmpi eq, %dim_19, %c1 : index
      %126 = arith.select %125, %c0, %120 : index
      %127 = arith.cmpi eq, %dim_4, %c1 : index
      %128 = arith.select %127, %c0, %121 : index
      %extracted = tensor.extract %arg2[%124, %126, %128, %122] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    cf.assert %19, "must have at most one inferred (negative) dimension"
    %reshape_16 = tensor.reshape %103(%from_elements) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %104 = arith.index_cast %101 : i64 to index
    %105 = arith.index_cast %102 : i64 to index
    %106 = arith.cmpi eq, %101, %23 : i64
    cf.assert %106, "mismatching contracting dimension"
    %107 = arith.cmpi eq, %102, %24 : i64
    cf.assert %107, "mismatching contracting dimension"
    %108 = tensor.empty(%104, %105) : tensor<?x?x16xf32>
    %109 = linalg.fill ins(%cst : f32) outs(%108 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %110 = linalg.batch_matmul ins(%reshape_15, %reshape_16 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%109 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %111 = arith.muli %52, %c16_i64 : i64
    %112 = arith.cmpi sle, %53, %c1_i64 : i64
    cf.assert %112, "must have at most one inferred (negative) dimension"
    %113 = arith.muli %101, %102 : i64
    %114 = arith.muli %113, %c16_i64 : i64
    %115 = arith.divsi %114, %111 : i64
    %116 = arith.select %42, %115, %1 : i64
    %117 = arith.select %47, %115, %0 : i64
    %118 = arith.select %15, %115, %2 : i64
    %from_elements_17 = tensor.from_elements %116, %117, %118, %c16_i64 : tensor<4xi64>
    %reshape_18 = tensor.reshape %110(%from_elements_17) : (tensor<?x?x16xf32>, tensor<4xi64>) -> tensor<?x?x?x16xf32>
    return %reshape_18 : tensor<?x?x?x16xf32>
  }
}

// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x11x16:float32, 2x4x11x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @softcap_dynamic(%arg0: tensor<?x?x?x16xf32>, %arg1: tensor<?x?x?x16xf32>, %arg2: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %c1_i64 = arith.constant 1 : i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c16_i64 = arith.constant 16 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %cst_2 = arith.constant 2.000000e+01 : f32
    %dim = tensor.dim %arg0, %c1 : tensor<?x?x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_3 = tensor.dim %arg0, %c2 : tensor<?x?x?x16xf32>
    %1 = arith.index_cast %dim_3 : index to i64
    %dim_4 = tensor.dim %arg2, %c0 : tensor<?x?x?x16xf32>
    %2 = arith.index_cast %dim_4 : index to i64
    %dim_5 = tensor.dim %arg2, %c2 : tensor<?x?x?x16xf32>
    %3 = arith.index_cast %dim_5 : index to i64
    %dim_6 = tensor.dim %arg0, %c0 : tensor<?x?x?x16xf32>
    %expanded = tensor.expand_shape %arg0 [[0], [1], [2], [3, 4]] output_shape [%dim_6, %dim, %dim_3, 16, 1] : tensor<?x?x?x16xf32> into tensor<?x?x?x16x1xf32>
    %dim_7 = tensor.dim %arg1, %c0 : tensor<?x?x?x16xf32>
    %dim_8 = tensor.dim %arg1, %c1 : tensor<?x?x?x16xf32>
    %dim_9 = tensor.dim %arg1, %c2 : tensor<?x?x?x16xf32>
    %expanded_10 = tensor.expand_shape %arg1 [[0], [1], [2], [3, 4]] output_shape [%dim_7, %dim_8, %dim_9, 16, 1] : tensor<?x?x?x16xf32> into tensor<?x?x?x16x1xf32>
    %4 = arith.muli %2, %0 : i64
    %5 = arith.cmpi slt, %4, %c0_i64 : i64
    %6 = arith.select %5, %c1_i64, %4 : i64
    %7 = arith.extui %5 : i1 to i64
    %8 = arith.muli %6, %1 : i64
    %9 = arith.addi %7, %c1_i64 : i64
    %10 = arith.cmpi slt, %1, %c0_i64 : i64
    %11 = arith.select %10, %6, %8 : i64
    %12 = arith.select %10, %9, %7 : i64
    %13 = arith.muli %11, %c16_i64 : i64
    %14 = arith.cmpi sle, %12, %c1_i64 : i64
    cf.assert %14, "must have at most one inferred (negative) dimension"
    %15 = arith.index_cast %dim_6 : index to i64
    %16 = arith.muli %15, %0 : i64
    %17 = arith.muli %16, %1 : i64
    %18 = arith.muli %17, %c16_i64 : i64
    %19 = arith.divsi %18, %13 : i64
    %20 = arith.select %5, %19, %4 : i64
    %21 = arith.select %10, %19, %1 : i64
    %from_elements = tensor.from_elements %20, %21, %c16_i64 : tensor<3xi64>
    %reshape = tensor.reshape %expanded(%from_elements) : (tensor<?x?x?x16x1xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %22 = tensor.empty(%dim_7, %dim_8, %dim_9) : tensor<?x?x16x?x1xf32>
    %transposed = linalg.transpose ins(%expanded_10 : tensor<?x?x?x16x1xf32>) outs(%22 : tensor<?x?x16x?x1xf32>) permutation = [0, 1, 3, 2, 4] 
    %23 = arith.muli %6, %c16_i64 : i64
    %24 = arith.muli %23, %3 : i64
    %25 = arith.cmpi slt, %3, %c0_i64 : i64
    %26 = arith.select %25, %23, %24 : i64
    %27 = arith.select %25, %9, %7 : i64
    %28 = arith.cmpi sle, %27, %c1_i64 : i64
    cf.assert %28, "must have at most one inferred (negative) dimension"
    %29 = arith.index_cast %dim_7 : index to i64
    %30 = arith.index_cast %dim_8 : index to i64
    %31 = arith.muli %29, %30 : i64
    %32 = arith.muli %31, %c16_i64 : i64
    %33 = arith.index_cast %dim_9 : index to i64
    %34 = arith.muli %32, %33 : i64
    %35 = arith.divsi %34, %26 : i64
    %36 = arith.select %5, %35, %4 : i64
    %37 = arith.select %25, %35, %3 : i64
    %from_elements_11 = tensor.from_elements %36, %c16_i64, %37 : tensor<3xi64>
    %reshape_12 = tensor.reshape %transposed(%from_elements_11) : (tensor<?x?x16x?x1xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %38 = arith.index_cast %20 : i64 to index
    %39 = arith.index_cast %21 : i64 to index
    %40 = arith.index_cast %37 : i64 to index
    %41 = arith.cmpi eq, %20, %36 : i64
    cf.assert %41, "mismatching contracting dimension"
    %42 = tensor.empty(%38, %39, %40) : tensor<?x?x?xf32>
    %43 = linalg.fill ins(%cst : f32) outs(%42 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %44 = linalg.batch_matmul ins(%reshape, %reshape_12 : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%43 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %45 = arith.cmpi slt, %2, %c0_i64 : i64
    %46 = arith.select %45, %c1_i64, %2 : i64
    %47 = arith.extui %45 : i1 to i64
    %48 = arith.muli %46, %0 : i64
    %49 = arith.addi %47, %c1_i64 : i64
    %50 = arith.cmpi slt, %0, %c0_i64 : i64
    %51 = arith.select %50, %46, %48 : i64
    %52 = arith.select %50, %49, %47 : i64
    %53 = arith.muli %51, %1 : i64
    %54 = arith.addi %52, %c1_i64 : i64
    %55 = arith.select %10, %51, %53 : i64
    %56 = arith.select %10, %54, %52 : i64
    %57 = arith.muli %55, %3 : i64
    %58 = arith.addi %56, %c1_i64 : i64
    %59 = arith.select %25, %55, %57 : i64
    %60 = arith.select %25, %58, %56 : i64
    %61 = arith.cmpi sle, %60, %c1_i64 : i64
    cf.assert %61, "must have at most one inferred (negative) dimension"
    %62 = arith.muli %20, %21 : i64
    %63 = arith.muli %62, %37 : i64
    %64 = arith.divsi %63, %59 : i64
    %65 = arith.select %45, %64, %2 : i64
    %66 = arith.select %50, %64, %0 : i64
    %67 = arith.select %10, %64, %1 : i64
    %68 = arith.select %25, %64, %3 : i64
    %from_elements_13 = tensor.from_elements %65, %66, %67, %c1_i64, %68 : tensor<5xi64>
    %reshape_14 = tensor.reshape %44(%from_elements_13) : (tensor<?x?x?xf32>, tensor<5xi64>) -> tensor<?x?x?x1x?xf32>
    %69 = arith.index_cast %65 : i64 to index
    %70 = arith.index_cast %66 : i64 to index
    %71 = arith.index_cast %67 : i64 to index
    %72 = arith.index_cast %68 : i64 to index
    %73 = tensor.empty(%69, %70, %71, %72) : tensor<?x?x?x?x1xf32>
    %transposed_15 = linalg.transpose ins(%reshape_14 : tensor<?x?x?x1x?xf32>) outs(%73 : tensor<?x?x?x?x1xf32>) permutation = [0, 1, 2, 4, 3] 
    cf.assert %61, "must have at most one inferred (negative) dimension"
    %74 = arith.muli %65, %66 : i64
    %75 = arith.muli %74, %67 : i64
    %76 = arith.muli %75, %68 : i64
    %77 = arith.divsi %76, %59 : i64
    %78 = arith.select %45, %77, %2 : i64
    %79 = arith.select %50, %77, %0 : i64
    %80 = arith.select %10, %77, %1 : i64
    %81 = arith.select %25, %77, %3 : i64
    %from_elements_16 = tensor.from_elements %78, %79, %80, %81 : tensor<4xi64>
    %reshape_17 = tensor.reshape %transposed_15(%from_elements_16) : (tensor<?x?x?x?x1xf32>, tensor<4xi64>) -> tensor<?x?x?x?xf32>
    %82 = arith.index_cast %78 : i64 to index
    %83 = arith.index_cast %79 : i64 to index
    %84 = arith.index_cast %80 : i64 to index
    %85 = arith.index_cast %81 : i64 to index
    %86 = tensor.empty(%82, %83, %84, %85) : tensor<?x?x?x?xf32>
    %87 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_17 : tensor<?x?x?x?xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = arith.mulf %in, %cst_1 : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %88 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%87 : tensor<?x?x?x?xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = arith.divf %in, %cst_2 : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %89 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%88 : tensor<?x?x?x?xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = math.tanh %in : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %90 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%89 : tensor<?x?x?x?xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = arith.mulf %in, %cst_2 : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %91 = tensor.empty(%82, %83, %84) : tensor<?x?x?xi64>
    %92 = linalg.fill ins(%c0_i64 : i64) outs(%91 : tensor<?x?x?xi64>) -> tensor<?x?x?xi64>
    %93 = tensor.empty(%82, %83, %84) : tensor<?x?x?xf32>
    %94 = linalg.fill ins(%cst_0 : f32) outs(%93 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %95:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%90 : tensor<?x?x?x?xf32>) outs(%94, %92 : tensor<?x?x?xf32>, tensor<?x?x?xi64>) {
    ^bb0(%in: f32, %out: f32, %out_31: i64):
      %150 = linalg.index 3 : index
      %151 = arith.index_cast %150 : index to i64
      %152 = arith.maximumf %in, %out : f32
      %153 = arith.cmpf ogt, %in, %out : f32
      %154 = arith.select %153, %151, %out_31 : i64
      linalg.yield %152, %154 : f32, i64
    } -> (tensor<?x?x?xf32>, tensor<?x?x?xi64>)
    %expanded_18 = tensor.expand_shape %95#0 [[0], [1], [2, 3]] output_shape [%82, %83, %84, 1] : tensor<?x?x?xf32> into tensor<?x?x?x1xf32>
    %96 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%90, %expanded_18 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_31: f32, %out: f32):
      %150 = arith.subf %in, %in_31 : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %97 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%96 : tensor<?x?x?x?xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = math.exp %in : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %98 = tensor.empty(%82, %83, %84) : tensor<?x?x?x1xf32>
    %99 = linalg.fill ins(%cst : f32) outs(%98 : tensor<?x?x?x1xf32>) -> tensor<?x?x?x1xf32>
    %100 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%97 : tensor<?x?x?x?xf32>) outs(%99 : tensor<?x?x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %150 = arith.addf %in, %out : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x1xf32>
    %101 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%97, %100 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%86 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_31: f32, %out: f32):
      %150 = arith.divf %in, %in_31 : f32
      linalg.yield %150 : f32
    } -> tensor<?x?x?x?xf32>
    %expanded_19 = tensor.expand_shape %101 [[0], [1], [2], [3, 4]] output_shape [%82, %83, %84, %85, 1] : tensor<?x?x?x?xf32> into tensor<?x?x?x?x1xf32>
    %dim_20 = tensor.dim %arg2, %c1 : tensor<?x?x?x16xf32>
    %expanded_21 = tensor.expand_shape %arg2 [[0], [1], [2], [3, 4]] output_shape [%dim_4, %dim_20, %dim_5, 16, 1] : tensor<?x?x?x16xf32> into tensor<?x?x?x16x1xf32>
    %102 = arith.muli %11, %3 : i64
    %103 = arith.addi %12, %c1_i64 : i64
    %104 = arith.select %25, %11, %102 : i64
    %105 = arith.select %25, %103, %12 : i64
    %106 = arith.cmpi sle, %105, %c1_i64 : i64
    cf.assert %106, "must have at most one inferred (negative) dimension"
    %107 = arith.muli %78, %79 : i64
    %108 = arith.muli %107, %80 : i64
    %109 = arith.muli %108, %81 : i64
    %110 = arith.divsi %109, %104 : i64
    %111 = arith.select %5, %110, %4 : i64
    %112 = arith.select %10, %110, %1 : i64
    %113 = arith.select %25, %110, %3 : i64
    %from_elements_22 = tensor.from_elements %111, %112, %113 : tensor<3xi64>
    %reshape_23 = tensor.reshape %expanded_19(%from_elements_22) : (tensor<?x?x?x?x1xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    %114 = arith.muli %6, %3 : i64
    %115 = arith.select %25, %6, %114 : i64
    %116 = arith.muli %115, %c16_i64 : i64
    cf.assert %28, "must have at most one inferred (negative) dimension"
    %117 = arith.index_cast %dim_20 : index to i64
    %118 = arith.muli %2, %117 : i64
    %119 = arith.muli %118, %3 : i64
    %120 = arith.muli %119, %c16_i64 : i64
    %121 = arith.divsi %120, %116 : i64
    %122 = arith.select %5, %121, %4 : i64
    %123 = arith.select %25, %121, %3 : i64
    %from_elements_24 = tensor.from_elements %122, %123, %c16_i64 : tensor<3xi64>
    %reshape_25 = tensor.reshape %expanded_21(%from_elements_24) : (tensor<?x?x?x16x1xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %124 = arith.index_cast %111 : i64 to index
    %125 = arith.index_cast %112 : i64 to index
    %126 = arith.cmpi eq, %111, %122 : i64
    cf.assert %126, "mismatching contracting dimension"
    %127 = arith.cmpi eq, %113, %123 : i64
    cf.assert %127, "mismatching contracting dimension"
    %128 = tensor.empty(%124, %125) : tensor<?x?x16xf32>
    %129 = linalg.fill ins(%cst : f32) outs(%128 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %130 = linalg.batch_matmul ins(%reshape_23, %reshape_25 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%129 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %131 = arith.muli %55, %c16_i64 : i64
    %132 = arith.cmpi sle, %56, %c1_i64 : i64
    cf.assert %132, "must have at most one inferred (negative) dimension"
    %133 = arith.muli %111, %112 : i64
    %134 = arith.muli %133, %c16_i64 : i64
    %135 = arith.divsi %134, %131 : i64
    %136 = arith.select %45, %135, %2 : i64
    %137 = arith.select %50, %135, %0 : i64
    %138 = arith.select %10, %135, %1 : i64
    %from_elements_26 = tensor.from_elements %136, %137, %138, %c1_i64, %c16_i64 : tensor<5xi64>
    %reshape_27 = tensor.reshape %130(%from_elements_26) : (tensor<?x?x16xf32>, tensor<5xi64>) -> tensor<?x?x?x1x16xf32>
    %139 = arith.index_cast %136 : i64 to index
    %140 = arith.index_cast %137 : i64 to index
    %141 = arith.index_cast %138 : i64 to index
    %142 = tensor.empty(%139, %140, %141) : tensor<?x?x?x16x1xf32>
    %transposed_28 = linalg.transpose ins(%reshape_27 : tensor<?x?x?x1x16xf32>) outs(%142 : tensor<?x?x?x16x1xf32>) permutation = [0, 1, 2, 4, 3] 
    cf.assert %132, "must have at most one inferred (negative) dimension"
    %143 = arith.muli %136, %137 : i64
    %144 = arith.muli %143, %138 : i64
    %145 = arith.muli %144, %c16_i64 : i64
    %146 = arith.divsi %145, %131 : i64
    %147 = arith.select %45, %146, %2 : i64
    %148 = arith.select %50, %146, %0 : i64
    %149 = arith.select %10, %146, %1 : i64
    %from_elements_29 = tensor.from_elements %147, %148, %149, %c16_i64 : tensor<4xi64>
    %reshape_30 = tensor.reshape %transposed_28(%from_elements_29) : (tensor<?x?x?x16x1xf32>, tensor<4xi64>) -> tensor<?x?x?x16xf32>
    return %reshape_30 : tensor<?x?x?x16xf32>
  }
}

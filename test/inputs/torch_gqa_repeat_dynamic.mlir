// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x2x11x16:float32, 2x2x11x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @gqa_repeat_dynamic(%arg0: tensor<?x4x?x16xf32>, %arg1: tensor<?x2x?x16xf32>, %arg2: tensor<?x2x?x16xf32>) -> tensor<?x4x?x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %c4_i64 = arith.constant 4 : i64
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    %c16_i64 = arith.constant 16 : i64
    %c1_i64 = arith.constant 1 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %c64_i64 = arith.constant 64 : i64
    %cst_1 = arith.constant 2.500000e-01 : f32
    %dim = tensor.dim %arg0, %c2 : tensor<?x4x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_2 = tensor.dim %arg2, %c0 : tensor<?x2x?x16xf32>
    %1 = arith.index_cast %dim_2 : index to i64
    %dim_3 = tensor.dim %arg2, %c2 : tensor<?x2x?x16xf32>
    %2 = arith.index_cast %dim_3 : index to i64
    %dim_4 = tensor.dim %arg1, %c0 : tensor<?x2x?x16xf32>
    %dim_5 = tensor.dim %arg1, %c2 : tensor<?x2x?x16xf32>
    %expanded = tensor.expand_shape %arg1 [[0], [1], [2, 3], [4]] output_shape [%dim_4, 2, 1, %dim_5, 16] : tensor<?x2x?x16xf32> into tensor<?x2x1x?x16xf32>
    %3 = arith.cmpi sge, %1, %c0_i64 : i64
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    %4 = arith.cmpi sge, %2, %c0_i64 : i64
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %5 = tensor.empty(%dim_2, %dim_3) : tensor<?x2x2x?x16xf32>
    %6 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} outs(%5 : tensor<?x2x2x?x16xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 3 : index
      %132 = linalg.index 4 : index
      %133 = arith.cmpi eq, %dim_4, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %dim_5, %c1 : index
      %136 = arith.select %135, %c0, %131 : index
      %extracted = tensor.extract %expanded[%134, %130, %c0, %136, %132] : tensor<?x2x1x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x2x2x?x16xf32>
    %7 = arith.cmpi slt, %1, %c0_i64 : i64
    %8 = arith.select %7, %c1_i64, %1 : i64
    %9 = arith.extui %7 : i1 to i64
    %10 = arith.muli %8, %c4_i64 : i64
    %11 = arith.muli %10, %2 : i64
    %12 = arith.addi %9, %c1_i64 : i64
    %13 = arith.cmpi slt, %2, %c0_i64 : i64
    %14 = arith.select %13, %10, %11 : i64
    %15 = arith.select %13, %12, %9 : i64
    %16 = arith.muli %14, %c16_i64 : i64
    %17 = arith.cmpi sle, %15, %c1_i64 : i64
    cf.assert %17, "must have at most one inferred (negative) dimension"
    %18 = arith.muli %1, %c4_i64 : i64
    %19 = arith.muli %18, %2 : i64
    %20 = arith.muli %19, %c16_i64 : i64
    %21 = arith.divsi %20, %16 : i64
    %22 = arith.select %7, %21, %1 : i64
    %23 = arith.select %13, %21, %2 : i64
    %from_elements = tensor.from_elements %22, %c4_i64, %23, %c16_i64 : tensor<4xi64>
    %reshape = tensor.reshape %6(%from_elements) : (tensor<?x2x2x?x16xf32>, tensor<4xi64>) -> tensor<?x4x?x16xf32>
    %expanded_6 = tensor.expand_shape %arg2 [[0], [1], [2, 3], [4]] output_shape [%dim_2, 2, 1, %dim_3, 16] : tensor<?x2x?x16xf32> into tensor<?x2x1x?x16xf32>
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %24 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} outs(%5 : tensor<?x2x2x?x16xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 3 : index
      %132 = linalg.index 4 : index
      %133 = arith.cmpi eq, %dim_2, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %dim_3, %c1 : index
      %136 = arith.select %135, %c0, %131 : index
      %extracted = tensor.extract %expanded_6[%134, %130, %c0, %136, %132] : tensor<?x2x1x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x2x2x?x16xf32>
    cf.assert %17, "must have at most one inferred (negative) dimension"
    %reshape_7 = tensor.reshape %24(%from_elements) : (tensor<?x2x2x?x16xf32>, tensor<4xi64>) -> tensor<?x4x?x16xf32>
    %25 = arith.index_cast %22 : i64 to index
    %26 = arith.index_cast %23 : i64 to index
    %27 = tensor.empty(%25, %26) : tensor<?x4x16x?xf32>
    %transposed = linalg.transpose ins(%reshape : tensor<?x4x?x16xf32>) outs(%27 : tensor<?x4x16x?xf32>) permutation = [0, 1, 3, 2] 
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    %28 = arith.cmpi sge, %0, %c0_i64 : i64
    cf.assert %28, "unimplemented: dynamic negative broadcast sizes"
    %29 = tensor.empty(%dim_2, %dim) : tensor<?x4x?x16xf32>
    %30 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%29 : tensor<?x4x?x16xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 2 : index
      %132 = linalg.index 3 : index
      %dim_21 = tensor.dim %arg0, %c0 : tensor<?x4x?x16xf32>
      %133 = arith.cmpi eq, %dim_21, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %dim, %c1 : index
      %136 = arith.select %135, %c0, %131 : index
      %extracted = tensor.extract %arg0[%134, %130, %136, %132] : tensor<?x4x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x?x16xf32>
    %31 = arith.cmpi slt, %18, %c0_i64 : i64
    %32 = arith.select %31, %c1_i64, %18 : i64
    %33 = arith.extui %31 : i1 to i64
    %34 = arith.muli %32, %0 : i64
    %35 = arith.addi %33, %c1_i64 : i64
    %36 = arith.cmpi slt, %0, %c0_i64 : i64
    %37 = arith.select %36, %32, %34 : i64
    %38 = arith.select %36, %35, %33 : i64
    %39 = arith.muli %37, %c16_i64 : i64
    %40 = arith.cmpi sle, %38, %c1_i64 : i64
    cf.assert %40, "must have at most one inferred (negative) dimension"
    %41 = arith.muli %18, %0 : i64
    %42 = arith.muli %41, %c16_i64 : i64
    %43 = arith.divsi %42, %39 : i64
    %44 = arith.select %31, %43, %18 : i64
    %45 = arith.select %36, %43, %0 : i64
    %from_elements_8 = tensor.from_elements %44, %45, %c16_i64 : tensor<3xi64>
    %reshape_9 = tensor.reshape %30(%from_elements_8) : (tensor<?x4x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %46 = tensor.empty(%dim_2, %dim_3) : tensor<?x4x16x?xf32>
    %47 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%46 : tensor<?x4x16x?xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 2 : index
      %132 = linalg.index 3 : index
      %133 = arith.cmpi eq, %25, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %26, %c1 : index
      %136 = arith.select %135, %c0, %132 : index
      %extracted = tensor.extract %transposed[%134, %130, %131, %136] : tensor<?x4x16x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x16x?xf32>
    %48 = arith.muli %32, %c16_i64 : i64
    %49 = arith.muli %48, %2 : i64
    %50 = arith.select %13, %48, %49 : i64
    %51 = arith.select %13, %35, %33 : i64
    %52 = arith.cmpi sle, %51, %c1_i64 : i64
    cf.assert %52, "must have at most one inferred (negative) dimension"
    %53 = arith.muli %1, %c64_i64 : i64
    %54 = arith.muli %53, %2 : i64
    %55 = arith.divsi %54, %50 : i64
    %56 = arith.select %31, %55, %18 : i64
    %57 = arith.select %13, %55, %2 : i64
    %from_elements_10 = tensor.from_elements %56, %c16_i64, %57 : tensor<3xi64>
    %reshape_11 = tensor.reshape %47(%from_elements_10) : (tensor<?x4x16x?xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %58 = arith.index_cast %44 : i64 to index
    %59 = arith.index_cast %45 : i64 to index
    %60 = arith.index_cast %57 : i64 to index
    %61 = arith.cmpi eq, %44, %56 : i64
    cf.assert %61, "mismatching contracting dimension"
    %62 = tensor.empty(%58, %59, %60) : tensor<?x?x?xf32>
    %63 = linalg.fill ins(%cst : f32) outs(%62 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %64 = linalg.batch_matmul ins(%reshape_9, %reshape_11 : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%63 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %65 = arith.muli %10, %0 : i64
    %66 = arith.select %36, %10, %65 : i64
    %67 = arith.select %36, %12, %9 : i64
    %68 = arith.muli %66, %2 : i64
    %69 = arith.addi %67, %c1_i64 : i64
    %70 = arith.select %13, %66, %68 : i64
    %71 = arith.select %13, %69, %67 : i64
    %72 = arith.cmpi sle, %71, %c1_i64 : i64
    cf.assert %72, "must have at most one inferred (negative) dimension"
    %73 = arith.muli %44, %45 : i64
    %74 = arith.muli %73, %57 : i64
    %75 = arith.divsi %74, %70 : i64
    %76 = arith.select %7, %75, %1 : i64
    %77 = arith.select %36, %75, %0 : i64
    %78 = arith.select %13, %75, %2 : i64
    %from_elements_12 = tensor.from_elements %76, %c4_i64, %77, %78 : tensor<4xi64>
    %reshape_13 = tensor.reshape %64(%from_elements_12) : (tensor<?x?x?xf32>, tensor<4xi64>) -> tensor<?x4x?x?xf32>
    %79 = arith.index_cast %76 : i64 to index
    %80 = arith.index_cast %77 : i64 to index
    %81 = arith.index_cast %78 : i64 to index
    %82 = tensor.empty(%79, %80, %81) : tensor<?x4x?x?xf32>
    %83 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_13 : tensor<?x4x?x?xf32>) outs(%82 : tensor<?x4x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %129 = arith.mulf %in, %cst_1 : f32
      linalg.yield %129 : f32
    } -> tensor<?x4x?x?xf32>
    %84 = tensor.empty(%79, %80) : tensor<?x4x?xi64>
    %85 = linalg.fill ins(%c0_i64 : i64) outs(%84 : tensor<?x4x?xi64>) -> tensor<?x4x?xi64>
    %86 = tensor.empty(%79, %80) : tensor<?x4x?xf32>
    %87 = linalg.fill ins(%cst_0 : f32) outs(%86 : tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
    %88:2 = linalg.generic {indexing_maps = [#map1, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%83 : tensor<?x4x?x?xf32>) outs(%87, %85 : tensor<?x4x?xf32>, tensor<?x4x?xi64>) {
    ^bb0(%in: f32, %out: f32, %out_21: i64):
      %129 = linalg.index 3 : index
      %130 = arith.index_cast %129 : index to i64
      %131 = arith.maximumf %in, %out : f32
      %132 = arith.cmpf ogt, %in, %out : f32
      %133 = arith.select %132, %130, %out_21 : i64
      linalg.yield %131, %133 : f32, i64
    } -> (tensor<?x4x?xf32>, tensor<?x4x?xi64>)
    %expanded_14 = tensor.expand_shape %88#0 [[0], [1], [2, 3]] output_shape [%79, 4, %80, 1] : tensor<?x4x?xf32> into tensor<?x4x?x1xf32>
    %89 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%83, %expanded_14 : tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) outs(%82 : tensor<?x4x?x?xf32>) {
    ^bb0(%in: f32, %in_21: f32, %out: f32):
      %129 = arith.subf %in, %in_21 : f32
      linalg.yield %129 : f32
    } -> tensor<?x4x?x?xf32>
    %90 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%89 : tensor<?x4x?x?xf32>) outs(%82 : tensor<?x4x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %129 = math.exp %in : f32
      linalg.yield %129 : f32
    } -> tensor<?x4x?x?xf32>
    %91 = tensor.empty(%79, %80) : tensor<?x4x?x1xf32>
    %92 = linalg.fill ins(%cst : f32) outs(%91 : tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf32>
    %93 = linalg.generic {indexing_maps = [#map1, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%90 : tensor<?x4x?x?xf32>) outs(%92 : tensor<?x4x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %129 = arith.addf %in, %out : f32
      linalg.yield %129 : f32
    } -> tensor<?x4x?x1xf32>
    %94 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%90, %93 : tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) outs(%82 : tensor<?x4x?x?xf32>) {
    ^bb0(%in: f32, %in_21: f32, %out: f32):
      %129 = arith.divf %in, %in_21 : f32
      linalg.yield %129 : f32
    } -> tensor<?x4x?x?xf32>
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %28, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %95 = tensor.empty(%dim_2, %dim, %dim_3) : tensor<?x4x?x?xf32>
    %96 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%95 : tensor<?x4x?x?xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 2 : index
      %132 = linalg.index 3 : index
      %133 = arith.cmpi eq, %79, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %80, %c1 : index
      %136 = arith.select %135, %c0, %131 : index
      %137 = arith.cmpi eq, %81, %c1 : index
      %138 = arith.select %137, %c0, %132 : index
      %extracted = tensor.extract %94[%134, %130, %136, %138] : tensor<?x4x?x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x?x?xf32>
    %97 = arith.muli %37, %2 : i64
    %98 = arith.addi %38, %c1_i64 : i64
    %99 = arith.select %13, %37, %97 : i64
    %100 = arith.select %13, %98, %38 : i64
    %101 = arith.cmpi sle, %100, %c1_i64 : i64
    cf.assert %101, "must have at most one inferred (negative) dimension"
    %102 = arith.muli %41, %2 : i64
    %103 = arith.divsi %102, %99 : i64
    %104 = arith.select %31, %103, %18 : i64
    %105 = arith.select %36, %103, %0 : i64
    %106 = arith.select %13, %103, %2 : i64
    %from_elements_15 = tensor.from_elements %104, %105, %106 : tensor<3xi64>
    %reshape_16 = tensor.reshape %96(%from_elements_15) : (tensor<?x4x?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    cf.assert %3, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %4, "unimplemented: dynamic negative broadcast sizes"
    %107 = tensor.empty(%dim_2, %dim_3) : tensor<?x4x?x16xf32>
    %108 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%107 : tensor<?x4x?x16xf32>) {
    ^bb0(%out: f32):
      %129 = linalg.index 0 : index
      %130 = linalg.index 1 : index
      %131 = linalg.index 2 : index
      %132 = linalg.index 3 : index
      %133 = arith.cmpi eq, %25, %c1 : index
      %134 = arith.select %133, %c0, %129 : index
      %135 = arith.cmpi eq, %26, %c1 : index
      %136 = arith.select %135, %c0, %131 : index
      %extracted = tensor.extract %reshape_7[%134, %130, %136, %132] : tensor<?x4x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x4x?x16xf32>
    %109 = arith.muli %32, %2 : i64
    %110 = arith.select %13, %32, %109 : i64
    %111 = arith.muli %110, %c16_i64 : i64
    cf.assert %52, "must have at most one inferred (negative) dimension"
    %112 = arith.divsi %20, %111 : i64
    %113 = arith.select %31, %112, %18 : i64
    %114 = arith.select %13, %112, %2 : i64
    %from_elements_17 = tensor.from_elements %113, %114, %c16_i64 : tensor<3xi64>
    %reshape_18 = tensor.reshape %108(%from_elements_17) : (tensor<?x4x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %115 = arith.index_cast %104 : i64 to index
    %116 = arith.index_cast %105 : i64 to index
    %117 = arith.cmpi eq, %104, %113 : i64
    cf.assert %117, "mismatching contracting dimension"
    %118 = arith.cmpi eq, %106, %114 : i64
    cf.assert %118, "mismatching contracting dimension"
    %119 = tensor.empty(%115, %116) : tensor<?x?x16xf32>
    %120 = linalg.fill ins(%cst : f32) outs(%119 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %121 = linalg.batch_matmul ins(%reshape_16, %reshape_18 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%120 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %122 = arith.muli %66, %c16_i64 : i64
    %123 = arith.cmpi sle, %67, %c1_i64 : i64
    cf.assert %123, "must have at most one inferred (negative) dimension"
    %124 = arith.muli %104, %105 : i64
    %125 = arith.muli %124, %c16_i64 : i64
    %126 = arith.divsi %125, %122 : i64
    %127 = arith.select %7, %126, %1 : i64
    %128 = arith.select %36, %126, %0 : i64
    %from_elements_19 = tensor.from_elements %127, %c4_i64, %128, %c16_i64 : tensor<4xi64>
    %reshape_20 = tensor.reshape %121(%from_elements_19) : (tensor<?x?x16xf32>, tensor<4xi64>) -> tensor<?x4x?x16xf32>
    return %reshape_20 : tensor<?x4x?x16xf32>
  }
}

// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x11x16:float32, 2x4x11x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @plain_dynamic(%arg0: tensor<?x?x?x16xf32>, %arg1: tensor<?x?x?x16xf32>, %arg2: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %c1_i64 = arith.constant 1 : i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c16_i64 = arith.constant 16 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 2.500000e-01 : f32
    %dim = tensor.dim %arg0, %c1 : tensor<?x?x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_2 = tensor.dim %arg0, %c2 : tensor<?x?x?x16xf32>
    %1 = arith.index_cast %dim_2 : index to i64
    %dim_3 = tensor.dim %arg2, %c0 : tensor<?x?x?x16xf32>
    %2 = arith.index_cast %dim_3 : index to i64
    %dim_4 = tensor.dim %arg2, %c2 : tensor<?x?x?x16xf32>
    %3 = arith.index_cast %dim_4 : index to i64
    %dim_5 = tensor.dim %arg1, %c0 : tensor<?x?x?x16xf32>
    %dim_6 = tensor.dim %arg1, %c1 : tensor<?x?x?x16xf32>
    %dim_7 = tensor.dim %arg1, %c2 : tensor<?x?x?x16xf32>
    %4 = tensor.empty(%dim_5, %dim_6, %dim_7) : tensor<?x?x16x?xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<?x?x?x16xf32>) outs(%4 : tensor<?x?x16x?xf32>) permutation = [0, 1, 3, 2] 
    %5 = arith.muli %2, %0 : i64
    %6 = arith.cmpi sge, %2, %c0_i64 : i64
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    %7 = arith.cmpi sge, %0, %c0_i64 : i64
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %8 = arith.cmpi sge, %1, %c0_i64 : i64
    cf.assert %8, "unimplemented: dynamic negative broadcast sizes"
    %9 = tensor.empty(%dim_3, %dim, %dim_2) : tensor<?x?x?x16xf32>
    %10 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%9 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %125 = linalg.index 0 : index
      %126 = linalg.index 1 : index
      %127 = linalg.index 2 : index
      %128 = linalg.index 3 : index
      %dim_18 = tensor.dim %arg0, %c0 : tensor<?x?x?x16xf32>
      %129 = arith.cmpi eq, %dim_18, %c1 : index
      %130 = arith.select %129, %c0, %125 : index
      %131 = arith.cmpi eq, %dim, %c1 : index
      %132 = arith.select %131, %c0, %126 : index
      %133 = arith.cmpi eq, %dim_2, %c1 : index
      %134 = arith.select %133, %c0, %127 : index
      %extracted = tensor.extract %arg0[%130, %132, %134, %128] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    %11 = arith.cmpi slt, %5, %c0_i64 : i64
    %12 = arith.select %11, %c1_i64, %5 : i64
    %13 = arith.extui %11 : i1 to i64
    %14 = arith.muli %12, %1 : i64
    %15 = arith.addi %13, %c1_i64 : i64
    %16 = arith.cmpi slt, %1, %c0_i64 : i64
    %17 = arith.select %16, %12, %14 : i64
    %18 = arith.select %16, %15, %13 : i64
    %19 = arith.muli %17, %c16_i64 : i64
    %20 = arith.cmpi sle, %18, %c1_i64 : i64
    cf.assert %20, "must have at most one inferred (negative) dimension"
    %21 = arith.muli %5, %1 : i64
    %22 = arith.muli %21, %c16_i64 : i64
    %23 = arith.divsi %22, %19 : i64
    %24 = arith.select %11, %23, %5 : i64
    %25 = arith.select %16, %23, %1 : i64
    %from_elements = tensor.from_elements %24, %25, %c16_i64 : tensor<3xi64>
    %reshape = tensor.reshape %10(%from_elements) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    %26 = arith.cmpi sge, %3, %c0_i64 : i64
    cf.assert %26, "unimplemented: dynamic negative broadcast sizes"
    %27 = tensor.empty(%dim_3, %dim, %dim_4) : tensor<?x?x16x?xf32>
    %28 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%27 : tensor<?x?x16x?xf32>) {
    ^bb0(%out: f32):
      %125 = linalg.index 0 : index
      %126 = linalg.index 1 : index
      %127 = linalg.index 2 : index
      %128 = linalg.index 3 : index
      %129 = arith.cmpi eq, %dim_5, %c1 : index
      %130 = arith.select %129, %c0, %125 : index
      %131 = arith.cmpi eq, %dim_6, %c1 : index
      %132 = arith.select %131, %c0, %126 : index
      %133 = arith.cmpi eq, %dim_7, %c1 : index
      %134 = arith.select %133, %c0, %128 : index
      %extracted = tensor.extract %transposed[%130, %132, %127, %134] : tensor<?x?x16x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x16x?xf32>
    %29 = arith.muli %12, %c16_i64 : i64
    %30 = arith.muli %29, %3 : i64
    %31 = arith.cmpi slt, %3, %c0_i64 : i64
    %32 = arith.select %31, %29, %30 : i64
    %33 = arith.select %31, %15, %13 : i64
    %34 = arith.cmpi sle, %33, %c1_i64 : i64
    cf.assert %34, "must have at most one inferred (negative) dimension"
    %35 = arith.muli %5, %c16_i64 : i64
    %36 = arith.muli %35, %3 : i64
    %37 = arith.divsi %36, %32 : i64
    %38 = arith.select %11, %37, %5 : i64
    %39 = arith.select %31, %37, %3 : i64
    %from_elements_8 = tensor.from_elements %38, %c16_i64, %39 : tensor<3xi64>
    %reshape_9 = tensor.reshape %28(%from_elements_8) : (tensor<?x?x16x?xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %40 = arith.index_cast %24 : i64 to index
    %41 = arith.index_cast %25 : i64 to index
    %42 = arith.index_cast %39 : i64 to index
    %43 = arith.cmpi eq, %24, %38 : i64
    cf.assert %43, "mismatching contracting dimension"
    %44 = tensor.empty(%40, %41, %42) : tensor<?x?x?xf32>
    %45 = linalg.fill ins(%cst : f32) outs(%44 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %46 = linalg.batch_matmul ins(%reshape, %reshape_9 : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%45 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %47 = arith.cmpi slt, %2, %c0_i64 : i64
    %48 = arith.select %47, %c1_i64, %2 : i64
    %49 = arith.extui %47 : i1 to i64
    %50 = arith.muli %48, %0 : i64
    %51 = arith.addi %49, %c1_i64 : i64
    %52 = arith.cmpi slt, %0, %c0_i64 : i64
    %53 = arith.select %52, %48, %50 : i64
    %54 = arith.select %52, %51, %49 : i64
    %55 = arith.muli %53, %1 : i64
    %56 = arith.addi %54, %c1_i64 : i64
    %57 = arith.select %16, %53, %55 : i64
    %58 = arith.select %16, %56, %54 : i64
    %59 = arith.muli %57, %3 : i64
    %60 = arith.addi %58, %c1_i64 : i64
    %61 = arith.select %31, %57, %59 : i64
    %62 = arith.select %31, %60, %58 : i64
    %63 = arith.cmpi sle, %62, %c1_i64 : i64
    cf.assert %63, "must have at most one inferred (negative) dimension"
    %64 = arith.muli %24, %25 : i64
    %65 = arith.muli %64, %39 : i64
    %66 = arith.divsi %65, %61 : i64
    %67 = arith.select %47, %66, %2 : i64
    %68 = arith.select %52, %66, %0 : i64
    %69 = arith.select %16, %66, %1 : i64
    %70 = arith.select %31, %66, %3 : i64
    %from_elements_10 = tensor.from_elements %67, %68, %69, %70 : tensor<4xi64>
    %reshape_11 = tensor.reshape %46(%from_elements_10) : (tensor<?x?x?xf32>, tensor<4xi64>) -> tensor<?x?x?x?xf32>
    %71 = arith.index_cast %67 : i64 to index
    %72 = arith.index_cast %68 : i64 to index
    %73 = arith.index_cast %69 : i64 to index
    %74 = arith.index_cast %70 : i64 to index
    %75 = tensor.empty(%71, %72, %73, %74) : tensor<?x?x?x?xf32>
    %76 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_11 : tensor<?x?x?x?xf32>) outs(%75 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %125 = arith.mulf %in, %cst_1 : f32
      linalg.yield %125 : f32
    } -> tensor<?x?x?x?xf32>
    %77 = tensor.empty(%71, %72, %73) : tensor<?x?x?xi64>
    %78 = linalg.fill ins(%c0_i64 : i64) outs(%77 : tensor<?x?x?xi64>) -> tensor<?x?x?xi64>
    %79 = tensor.empty(%71, %72, %73) : tensor<?x?x?xf32>
    %80 = linalg.fill ins(%cst_0 : f32) outs(%79 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %81:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%76 : tensor<?x?x?x?xf32>) outs(%80, %78 : tensor<?x?x?xf32>, tensor<?x?x?xi64>) {
    ^bb0(%in: f32, %out: f32, %out_18: i64):
      %125 = linalg.index 3 : index
      %126 = arith.index_cast %125 : index to i64
      %127 = arith.maximumf %in, %out : f32
      %128 = arith.cmpf ogt, %in, %out : f32
      %129 = arith.select %128, %126, %out_18 : i64
      linalg.yield %127, %129 : f32, i64
    } -> (tensor<?x?x?xf32>, tensor<?x?x?xi64>)
    %expanded = tensor.expand_shape %81#0 [[0], [1], [2, 3]] output_shape [%71, %72, %73, 1] : tensor<?x?x?xf32> into tensor<?x?x?x1xf32>
    %82 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%76, %expanded : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%75 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_18: f32, %out: f32):
      %125 = arith.subf %in, %in_18 : f32
      linalg.yield %125 : f32
    } -> tensor<?x?x?x?xf32>
    %83 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%82 : tensor<?x?x?x?xf32>) outs(%75 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %125 = math.exp %in : f32
      linalg.yield %125 : f32
    } -> tensor<?x?x?x?xf32>
    %84 = tensor.empty(%71, %72, %73) : tensor<?x?x?x1xf32>
    %85 = linalg.fill ins(%cst : f32) outs(%84 : tensor<?x?x?x1xf32>) -> tensor<?x?x?x1xf32>
    %86 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%83 : tensor<?x?x?x?xf32>) outs(%85 : tensor<?x?x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %125 = arith.addf %in, %out : f32
      linalg.yield %125 : f32
    } -> tensor<?x?x?x1xf32>
    %87 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%83, %86 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%75 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_18: f32, %out: f32):
      %125 = arith.divf %in, %in_18 : f32
      linalg.yield %125 : f32
    } -> tensor<?x?x?x?xf32>
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %8, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %26, "unimplemented: dynamic negative broadcast sizes"
    %88 = tensor.empty(%dim_3, %dim, %dim_2, %dim_4) : tensor<?x?x?x?xf32>
    %89 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%88 : tensor<?x?x?x?xf32>) {
    ^bb0(%out: f32):
      %125 = linalg.index 0 : index
      %126 = linalg.index 1 : index
      %127 = linalg.index 2 : index
      %128 = linalg.index 3 : index
      %129 = arith.cmpi eq, %71, %c1 : index
      %130 = arith.select %129, %c0, %125 : index
      %131 = arith.cmpi eq, %72, %c1 : index
      %132 = arith.select %131, %c0, %126 : index
      %133 = arith.cmpi eq, %73, %c1 : index
      %134 = arith.select %133, %c0, %127 : index
      %135 = arith.cmpi eq, %74, %c1 : index
      %136 = arith.select %135, %c0, %128 : index
      %extracted = tensor.extract %87[%130, %132, %134, %136] : tensor<?x?x?x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x?xf32>
    %90 = arith.muli %17, %3 : i64
    %91 = arith.addi %18, %c1_i64 : i64
    %92 = arith.select %31, %17, %90 : i64
    %93 = arith.select %31, %91, %18 : i64
    %94 = arith.cmpi sle, %93, %c1_i64 : i64
    cf.assert %94, "must have at most one inferred (negative) dimension"
    %95 = arith.muli %21, %3 : i64
    %96 = arith.divsi %95, %92 : i64
    %97 = arith.select %11, %96, %5 : i64
    %98 = arith.select %16, %96, %1 : i64
    %99 = arith.select %31, %96, %3 : i64
    %from_elements_12 = tensor.from_elements %97, %98, %99 : tensor<3xi64>
    %reshape_13 = tensor.reshape %89(%from_elements_12) : (tensor<?x?x?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    cf.assert %6, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %7, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %26, "unimplemented: dynamic negative broadcast sizes"
    %100 = tensor.empty(%dim_3, %dim, %dim_4) : tensor<?x?x?x16xf32>
    %101 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%100 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %125 = linalg.index 0 : index
      %126 = linalg.index 1 : index
      %127 = linalg.index 2 : index
      %128 = linalg.index 3 : index
      %129 = arith.cmpi eq, %dim_3, %c1 : index
      %130 = arith.select %129, %c0, %125 : index
      %dim_18 = tensor.dim %arg2, %c1 : tensor<?x?x?x16xf32>
      %131 = arith.cmpi eq, %dim_18, %c1 : index
      %132 = arith.select %131, %c0, %126 : index
      %133 = arith.cmpi eq, %dim_4, %c1 : index
      %134 = arith.select %133, %c0, %127 : index
      %extracted = tensor.extract %arg2[%130, %132, %134, %128] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    %102 = arith.muli %12, %3 : i64
    %103 = arith.select %31, %12, %102 : i64
    %104 = arith.muli %103, %c16_i64 : i64
    cf.assert %34, "must have at most one inferred (negative) dimension"
    %105 = arith.muli %5, %3 : i64
    %106 = arith.muli %105, %c16_i64 : i64
    %107 = arith.divsi %106, %104 : i64
    %108 = arith.select %11, %107, %5 : i64
    %109 = arith.select %31, %107, %3 : i64
    %from_elements_14 = tensor.from_elements %108, %109, %c16_i64 : tensor<3xi64>
    %reshape_15 = tensor.reshape %101(%from_elements_14) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %110 = arith.index_cast %97 : i64 to index
    %111 = arith.index_cast %98 : i64 to index
    %112 = arith.cmpi eq, %97, %108 : i64
    cf.assert %112, "mismatching contracting dimension"
    %113 = arith.cmpi eq, %99, %109 : i64
    cf.assert %113, "mismatching contracting dimension"
    %114 = tensor.empty(%110, %111) : tensor<?x?x16xf32>
    %115 = linalg.fill ins(%cst : f32) outs(%114 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %116 = linalg.batch_matmul ins(%reshape_13, %reshape_15 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%115 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %117 = arith.muli %57, %c16_i64 : i64
    %118 = arith.cmpi sle, %58, %c1_i64 : i64
    cf.assert %118, "must have at most one inferred (negative) dimension"
    %119 = arith.muli %97, %98 : i64
    %120 = arith.muli %119, %c16_i64 : i64
    %121 = arith.divsi %120, %117 : i64
    %122 = arith.select %47, %121, %2 : i64
    %123 = arith.select %52, %121, %0 : i64
    %124 = arith.select %16, %121, %1 : i64
    %from_elements_16 = tensor.from_elements %122, %123, %124, %c16_i64 : tensor<4xi64>
    %reshape_17 = tensor.reshape %116(%from_elements_16) : (tensor<?x?x16xf32>, tensor<4xi64>) -> tensor<?x?x?x16xf32>
    return %reshape_17 : tensor<?x?x?x16xf32>
  }
}

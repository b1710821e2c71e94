// What torch 2.13 and torch-mlir 20261001 make of a PyTorch program on (2x4x7x16:float32, 2x4x7x16:float32, 2x4x7x16:float32); run-time sizes.
// kernels: 1
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1) -> ()>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1) -> (0, d1)>
#map5 = affine_map<(d0, d1) -> (d0, 0)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
#map9 = affine_map<(d0, d1, d2, d3) -> ()>
module {
  func.func @sdpa_causal_dynamic(%arg0: tensor<?x?x?x16xf32>, %arg1: tensor<?x?x?x16xf32>, %arg2: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
    %c0_i64 = arith.constant 0 : i64
    %c1_i64 = arith.constant 1 : i64
    %c1 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c16_i64 = arith.constant 16 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %true = arith.constant true
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_3 = arith.constant dense<true> : tensor<i1>
    %cst_4 = arith.constant 0xFFF0000000000000 : f64
    %cst_5 = arith.constant 5.000000e-01 : f32
    %dim = tensor.dim %arg0, %c1 : tensor<?x?x?x16xf32>
    %0 = arith.index_cast %dim : index to i64
    %dim_6 = tensor.dim %arg2, %c0 : tensor<?x?x?x16xf32>
    %1 = arith.index_cast %dim_6 : index to i64
    %dim_7 = tensor.dim %arg2, %c2 : tensor<?x?x?x16xf32>
    %2 = arith.index_cast %dim_7 : index to i64
    %dim_8 = tensor.dim %arg0, %c0 : tensor<?x?x?x16xf32>
    %dim_9 = tensor.dim %arg0, %c2 : tensor<?x?x?x16xf32>
    %3 = tensor.empty(%dim_8, %dim, %dim_9) : tensor<?x?x?x16xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<?x?x?x16xf32>) outs(%3 : tensor<?x?x?x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %143 = arith.mulf %in, %cst_5 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x16xf32>
    %5 = arith.cmpi sge, %2, %c0_i64 : i64
    cf.assert %5, "negative values not allowed in new dimensions"
    cf.assert %5, "negative values not allowed in new dimensions"
    %6 = tensor.empty(%dim_7, %dim_7) : tensor<?x?xi1>
    %7 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel"]} ins(%cst_3 : tensor<i1>) outs(%6 : tensor<?x?xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<?x?xi1>
    %8 = tensor.empty(%dim_7) : tensor<?xi64>
    %9 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel"]} outs(%8 : tensor<?xi64>) {
    ^bb0(%out: i64):
      %143 = linalg.index 0 : index
      %144 = arith.index_cast %143 : index to i64
      linalg.yield %144 : i64
    } -> tensor<?xi64>
    %expanded = tensor.expand_shape %9 [[0, 1]] output_shape [1, %dim_7] : tensor<?xi64> into tensor<1x?xi64>
    %expanded_10 = tensor.expand_shape %9 [[0, 1]] output_shape [%dim_7, 1] : tensor<?xi64> into tensor<?x1xi64>
    %10 = tensor.empty(%dim_7, %dim_7) : tensor<?x?xi64>
    %11 = linalg.generic {indexing_maps = [#map4, #map5, #map2], iterator_types = ["parallel", "parallel"]} ins(%expanded, %expanded_10 : tensor<1x?xi64>, tensor<?x1xi64>) outs(%10 : tensor<?x?xi64>) {
    ^bb0(%in: i64, %in_24: i64, %out: i64):
      %143 = arith.subi %in, %in_24 : i64
      linalg.yield %143 : i64
    } -> tensor<?x?xi64>
    %12 = tensor.empty(%dim_7, %dim_7) : tensor<?x?xi1>
    %13 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel"]} ins(%11 : tensor<?x?xi64>) outs(%12 : tensor<?x?xi1>) {
    ^bb0(%in: i64, %out: i1):
      %143 = arith.cmpi sle, %in, %c0_i64 : i64
      linalg.yield %143 : i1
    } -> tensor<?x?xi1>
    cf.assert %true, "mismatched size for broadcast"
    cf.assert %true, "mismatched size for broadcast"
    %14 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel"]} ins(%13, %7 : tensor<?x?xi1>, tensor<?x?xi1>) outs(%12 : tensor<?x?xi1>) {
    ^bb0(%in: i1, %in_24: i1, %out: i1):
      %143 = arith.andi %in, %in_24 : i1
      linalg.yield %143 : i1
    } -> tensor<?x?xi1>
    %15 = tensor.empty(%dim_7, %dim_7) : tensor<?x?xf32>
    %16 = linalg.generic {indexing_maps = [#map2, #map1, #map1, #map2], iterator_types = ["parallel", "parallel"]} ins(%14, %cst_1, %cst_2 : tensor<?x?xi1>, tensor<f32>, tensor<f32>) outs(%15 : tensor<?x?xf32>) {
    ^bb0(%in: i1, %in_24: f32, %in_25: f32, %out: f32):
      %143 = arith.select %in, %in_24, %in_25 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?xf32>
    %dim_11 = tensor.dim %arg1, %c0 : tensor<?x?x?x16xf32>
    %dim_12 = tensor.dim %arg1, %c1 : tensor<?x?x?x16xf32>
    %dim_13 = tensor.dim %arg1, %c2 : tensor<?x?x?x16xf32>
    %17 = tensor.empty(%dim_11, %dim_12, %dim_13) : tensor<?x?x16x?xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<?x?x?x16xf32>) outs(%17 : tensor<?x?x16x?xf32>) permutation = [0, 1, 3, 2] 
    %18 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed : tensor<?x?x16x?xf32>) outs(%17 : tensor<?x?x16x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %143 = arith.mulf %in, %cst_5 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x16x?xf32>
    %19 = arith.muli %1, %0 : i64
    %20 = arith.cmpi sge, %1, %c0_i64 : i64
    cf.assert %20, "unimplemented: dynamic negative broadcast sizes"
    %21 = arith.cmpi sge, %0, %c0_i64 : i64
    cf.assert %21, "unimplemented: dynamic negative broadcast sizes"
    %22 = arith.cmpi sge, %2, %c0_i64 : i64
    cf.assert %22, "unimplemented: dynamic negative broadcast sizes"
    %23 = tensor.empty(%dim_6, %dim, %dim_7) : tensor<?x?x?x16xf32>
    %24 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%23 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %143 = linalg.index 0 : index
      %144 = linalg.index 1 : index
      %145 = linalg.index 2 : index
      %146 = linalg.index 3 : index
      %147 = arith.cmpi eq, %dim_8, %c1 : index
      %148 = arith.select %147, %c0, %143 : index
      %149 = arith.cmpi eq, %dim, %c1 : index
      %150 = arith.select %149, %c0, %144 : index
      %151 = arith.cmpi eq, %dim_9, %c1 : index
      %152 = arith.select %151, %c0, %145 : index
      %extracted = tensor.extract %4[%148, %150, %152, %146] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    %25 = arith.cmpi slt, %19, %c0_i64 : i64
    %26 = arith.select %25, %c1_i64, %19 : i64
    %27 = arith.extui %25 : i1 to i64
    %28 = arith.muli %26, %2 : i64
    %29 = arith.addi %27, %c1_i64 : i64
    %30 = arith.cmpi slt, %2, %c0_i64 : i64
    %31 = arith.select %30, %26, %28 : i64
    %32 = arith.select %30, %29, %27 : i64
    %33 = arith.muli %31, %c16_i64 : i64
    %34 = arith.cmpi sle, %32, %c1_i64 : i64
    cf.assert %34, "must have at most one inferred (negative) dimension"
    %35 = arith.muli %19, %2 : i64
    %36 = arith.muli %35, %c16_i64 : i64
    %37 = arith.divsi %36, %33 : i64
    %38 = arith.select %25, %37, %19 : i64
    %39 = arith.select %30, %37, %2 : i64
    %from_elements = tensor.from_elements %38, %39, %c16_i64 : tensor<3xi64>
    %reshape = tensor.reshape %24(%from_elements) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    cf.assert %20, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %21, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %22, "unimplemented: dynamic negative broadcast sizes"
    %40 = tensor.empty(%dim_6, %dim, %dim_7) : tensor<?x?x16x?xf32>
    %41 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%40 : tensor<?x?x16x?xf32>) {
    ^bb0(%out: f32):
      %143 = linalg.index 0 : index
      %144 = linalg.index 1 : index
      %145 = linalg.index 2 : index
      %146 = linalg.index 3 : index
      %147 = arith.cmpi eq, %dim_11, %c1 : index
      %148 = arith.select %147, %c0, %143 : index
      %149 = arith.cmpi eq, %dim_12, %c1 : index
      %150 = arith.select %149, %c0, %144 : index
      %151 = arith.cmpi eq, %dim_13, %c1 : index
      %152 = arith.select %151, %c0, %146 : index
      %extracted = tensor.extract %18[%148, %150, %145, %152] : tensor<?x?x16x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x16x?xf32>
    %42 = arith.muli %26, %c16_i64 : i64
    %43 = arith.muli %42, %2 : i64
    %44 = arith.select %30, %42, %43 : i64
    cf.assert %34, "must have at most one inferred (negative) dimension"
    %45 = arith.muli %19, %c16_i64 : i64
    %46 = arith.muli %45, %2 : i64
    %47 = arith.divsi %46, %44 : i64
    %48 = arith.select %25, %47, %19 : i64
    %49 = arith.select %30, %47, %2 : i64
    %from_elements_14 = tensor.from_elements %48, %c16_i64, %49 : tensor<3xi64>
    %reshape_15 = tensor.reshape %41(%from_elements_14) : (tensor<?x?x16x?xf32>, tensor<3xi64>) -> tensor<?x16x?xf32>
    %50 = arith.index_cast %38 : i64 to index
    %51 = arith.index_cast %39 : i64 to index
    %52 = arith.index_cast %49 : i64 to index
    %53 = arith.cmpi eq, %38, %48 : i64
    cf.assert %53, "mismatching contracting dimension"
    %54 = tensor.empty(%50, %51, %52) : tensor<?x?x?xf32>
    %55 = linalg.fill ins(%cst : f32) outs(%54 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %56 = linalg.batch_matmul ins(%reshape, %reshape_15 : tensor<?x?x16xf32>, tensor<?x16x?xf32>) outs(%55 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %57 = arith.cmpi slt, %1, %c0_i64 : i64
    %58 = arith.select %57, %c1_i64, %1 : i64
    %59 = arith.extui %57 : i1 to i64
    %60 = arith.muli %58, %0 : i64
    %61 = arith.addi %59, %c1_i64 : i64
    %62 = arith.cmpi slt, %0, %c0_i64 : i64
    %63 = arith.select %62, %58, %60 : i64
    %64 = arith.select %62, %61, %59 : i64
    %65 = arith.muli %63, %2 : i64
    %66 = arith.addi %64, %c1_i64 : i64
    %67 = arith.select %30, %63, %65 : i64
    %68 = arith.select %30, %66, %64 : i64
    %69 = arith.muli %67, %2 : i64
    %70 = arith.addi %68, %c1_i64 : i64
    %71 = arith.select %30, %63, %69 : i64
    %72 = arith.select %30, %70, %64 : i64
    %73 = arith.cmpi sle, %72, %c1_i64 : i64
    cf.assert %73, "must have at most one inferred (negative) dimension"
    %74 = arith.muli %38, %39 : i64
    %75 = arith.muli %74, %49 : i64
    %76 = arith.divsi %75, %71 : i64
    %77 = arith.select %57, %76, %1 : i64
    %78 = arith.select %62, %76, %0 : i64
    %79 = arith.select %30, %76, %2 : i64
    %from_elements_16 = tensor.from_elements %77, %78, %79, %79 : tensor<4xi64>
    %reshape_17 = tensor.reshape %56(%from_elements_16) : (tensor<?x?x?xf32>, tensor<4xi64>) -> tensor<?x?x?x?xf32>
    %80 = arith.index_cast %77 : i64 to index
    %81 = arith.index_cast %78 : i64 to index
    %82 = arith.index_cast %79 : i64 to index
    %83 = arith.cmpi eq, %82, %dim_7 : index
    cf.assert %83, "mismatched size for broadcast"
    cf.assert %83, "mismatched size for broadcast"
    %84 = tensor.empty(%80, %81, %82, %82) : tensor<?x?x?x?xf32>
    %85 = linalg.generic {indexing_maps = [#map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%reshape_17, %16 : tensor<?x?x?x?xf32>, tensor<?x?xf32>) outs(%84 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_24: f32, %out: f32):
      %143 = arith.addf %in, %in_24 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x?xf32>
    %86 = tensor.empty(%80, %81, %82) : tensor<?x?x?xi64>
    %87 = linalg.fill ins(%c0_i64 : i64) outs(%86 : tensor<?x?x?xi64>) -> tensor<?x?x?xi64>
    %88 = tensor.empty(%80, %81, %82) : tensor<?x?x?xf32>
    %89 = linalg.fill ins(%cst_0 : f32) outs(%88 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    %90:2 = linalg.generic {indexing_maps = [#map, #map7, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%85 : tensor<?x?x?x?xf32>) outs(%89, %87 : tensor<?x?x?xf32>, tensor<?x?x?xi64>) {
    ^bb0(%in: f32, %out: f32, %out_24: i64):
      %143 = linalg.index 3 : index
      %144 = arith.index_cast %143 : index to i64
      %145 = arith.maximumf %in, %out : f32
      %146 = arith.cmpf ogt, %in, %out : f32
      %147 = arith.select %146, %144, %out_24 : i64
      linalg.yield %145, %147 : f32, i64
    } -> (tensor<?x?x?xf32>, tensor<?x?x?xi64>)
    %expanded_18 = tensor.expand_shape %90#0 [[0], [1], [2, 3]] output_shape [%80, %81, %82, 1] : tensor<?x?x?xf32> into tensor<?x?x?x1xf32>
    %91 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%85, %expanded_18 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%84 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_24: f32, %out: f32):
      %143 = arith.subf %in, %in_24 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x?xf32>
    %92 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%91 : tensor<?x?x?x?xf32>) outs(%84 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %143 = math.exp %in : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x?xf32>
    %93 = tensor.empty(%80, %81, %82) : tensor<?x?x?x1xf32>
    %94 = linalg.fill ins(%cst : f32) outs(%93 : tensor<?x?x?x1xf32>) -> tensor<?x?x?x1xf32>
    %95 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%92 : tensor<?x?x?x?xf32>) outs(%94 : tensor<?x?x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %143 = arith.addf %in, %out : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x1xf32>
    %96 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%92, %95 : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>) outs(%84 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %in_24: f32, %out: f32):
      %143 = arith.divf %in, %in_24 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x?xf32>
    %97 = tensor.empty(%80, %81, %82, %82) : tensor<?x?x?x?xi1>
    %98 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%85 : tensor<?x?x?x?xf32>) outs(%97 : tensor<?x?x?x?xi1>) {
    ^bb0(%in: f32, %out: i1):
      %143 = arith.extf %in : f32 to f64
      %144 = arith.cmpf oeq, %143, %cst_4 : f64
      linalg.yield %144 : i1
    } -> tensor<?x?x?x?xi1>
    %99 = tensor.empty(%80, %81, %82) : tensor<?x?x?x1xi1>
    %100 = linalg.fill ins(%true : i1) outs(%99 : tensor<?x?x?x1xi1>) -> tensor<?x?x?x1xi1>
    %101 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%98 : tensor<?x?x?x?xi1>) outs(%100 : tensor<?x?x?x1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %143 = arith.andi %in, %out : i1
      linalg.yield %143 : i1
    } -> tensor<?x?x?x1xi1>
    %102 = arith.cmpi sge, %77, %c0_i64 : i64
    cf.assert %102, "negative values not allowed in new dimensions"
    %103 = arith.index_cast %77 : i64 to index
    %104 = arith.cmpi sge, %78, %c0_i64 : i64
    cf.assert %104, "negative values not allowed in new dimensions"
    %105 = arith.index_cast %78 : i64 to index
    %106 = arith.cmpi sge, %79, %c0_i64 : i64
    cf.assert %106, "negative values not allowed in new dimensions"
    %107 = arith.index_cast %79 : i64 to index
    cf.assert %106, "negative values not allowed in new dimensions"
    %108 = tensor.empty(%103, %105, %107, %107) : tensor<?x?x?x?xf32>
    %109 = linalg.generic {indexing_maps = [#map9, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_1 : tensor<f32>) outs(%108 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<?x?x?x?xf32>
    %110 = arith.cmpi eq, %80, %103 : index
    cf.assert %110, "mismatched size for broadcast"
    %111 = arith.cmpi eq, %81, %105 : index
    cf.assert %111, "mismatched size for broadcast"
    %112 = arith.cmpi eq, %82, %107 : index
    cf.assert %112, "mismatched size for broadcast"
    %113 = arith.cmpi eq, %107, %82 : index
    cf.assert %113, "mismatched size for broadcast"
    %114 = tensor.empty(%80, %81, %82, %107) : tensor<?x?x?x?xf32>
    %115 = linalg.generic {indexing_maps = [#map8, #map, #map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%101, %109, %96 : tensor<?x?x?x1xi1>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>) outs(%114 : tensor<?x?x?x?xf32>) {
    ^bb0(%in: i1, %in_24: f32, %in_25: f32, %out: f32):
      %143 = arith.select %in, %in_24, %in_25 : f32
      linalg.yield %143 : f32
    } -> tensor<?x?x?x?xf32>
    cf.assert %20, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %21, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %22, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %22, "unimplemented: dynamic negative broadcast sizes"
    %116 = tensor.empty(%dim_6, %dim, %dim_7, %dim_7) : tensor<?x?x?x?xf32>
    %117 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%116 : tensor<?x?x?x?xf32>) {
    ^bb0(%out: f32):
      %143 = linalg.index 0 : index
      %144 = linalg.index 1 : index
      %145 = linalg.index 2 : index
      %146 = linalg.index 3 : index
      %147 = arith.cmpi eq, %80, %c1 : index
      %148 = arith.select %147, %c0, %143 : index
      %149 = arith.cmpi eq, %81, %c1 : index
      %150 = arith.select %149, %c0, %144 : index
      %151 = arith.cmpi eq, %82, %c1 : index
      %152 = arith.select %151, %c0, %145 : index
      %153 = arith.cmpi eq, %107, %c1 : index
      %154 = arith.select %153, %c0, %146 : index
      %extracted = tensor.extract %115[%148, %150, %152, %154] : tensor<?x?x?x?xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x?xf32>
    %118 = arith.muli %31, %2 : i64
    %119 = arith.addi %32, %c1_i64 : i64
    %120 = arith.select %30, %26, %118 : i64
    %121 = arith.select %30, %119, %27 : i64
    %122 = arith.cmpi sle, %121, %c1_i64 : i64
    cf.assert %122, "must have at most one inferred (negative) dimension"
    %123 = arith.muli %35, %2 : i64
    %124 = arith.divsi %123, %120 : i64
    %125 = arith.select %25, %124, %19 : i64
    %126 = arith.select %30, %124, %2 : i64
    %from_elements_19 = tensor.from_elements %125, %126, %126 : tensor<3xi64>
    %reshape_20 = tensor.reshape %117(%from_elements_19) : (tensor<?x?x?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    cf.assert %20, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %21, "unimplemented: dynamic negative broadcast sizes"
    cf.assert %22, "unimplemented: dynamic negative broadcast sizes"
    %127 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%23 : tensor<?x?x?x16xf32>) {
    ^bb0(%out: f32):
      %143 = linalg.index 0 : index
      %144 = linalg.index 1 : index
      %145 = linalg.index 2 : index
      %146 = linalg.index 3 : index
      %147 = arith.cmpi eq, %dim_6, %c1 : index
      %148 = arith.select %147, %c0, %143 : index
      %dim_24 = tensor.dim %arg2, %c1 : tensor<?x?x?x16xf32>
      %149 = arith.cmpi eq, %dim_24, %c1 : index
      %150 = arith.select %149, %c0, %144 : index
      %151 = arith.cmpi eq, %dim_7, %c1 : index
      %152 = arith.select %151, %c0, %145 : index
      %extracted = tensor.extract %arg2[%148, %150, %152, %146] : tensor<?x?x?x16xf32>
      linalg.yield %extracted : f32
    } -> tensor<?x?x?x16xf32>
    cf.assert %34, "must have at most one inferred (negative) dimension"
    %reshape_21 = tensor.reshape %127(%from_elements) : (tensor<?x?x?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
    %128 = arith.index_cast %125 : i64 to index
    %129 = arith.index_cast %126 : i64 to index
    %130 = arith.cmpi eq, %125, %38 : i64
    cf.assert %130, "mismatching contracting dimension"
    %131 = arith.cmpi eq, %126, %39 : i64
    cf.assert %131, "mismatching contracting dimension"
    %132 = tensor.empty(%128, %129) : tensor<?x?x16xf32>
    %133 = linalg.fill ins(%cst : f32) outs(%132 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %134 = linalg.batch_matmul ins(%reshape_20, %reshape_21 : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%133 : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
    %135 = arith.muli %67, %c16_i64 : i64
    %136 = arith.cmpi sle, %68, %c1_i64 : i64
    cf.assert %136, "must have at most one inferred (negative) dimension"
    %137 = arith.muli %125, %126 : i64
    %138 = arith.muli %137, %c16_i64 : i64
    %139 = arith.divsi %138, %135 : i64
    %140 = arith.select %57, %139, %1 : i64
    %141 = arith.select %62, %139, %0 : i64
    %142 = arith.select %30, %139, %2 : i64
    %from_elements_22 = tensor.from_elements %140, %141, %142, %c16_i64 : tensor<4xi64>
    %reshape_23 = tensor.reshape %134(%from_elements_22) : (tensor<?x?x16xf32>, tensor<4xi64>) -> tensor<?x?x?x16xf32>
    return %reshape_23 : tensor<?x?x?x16xf32>
  }
}

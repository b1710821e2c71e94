// examples/attention.mlir after `neptune compile --emit fused`.
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
module {
  func.func @attention(%arg0: tensor<2x8x1024x64xf32>, %arg1: tensor<2x8x1024x64xf32>, %arg2: tensor<2x8x1024x64xf32>) -> tensor<2x8x1024x64xf32> {
    %0 = "neptune.stream"() ({
    ^bb0(%arg3: tensor<2x8x1024xf32>, %arg4: tensor<2x8x1024xf32>, %arg5: tensor<2x8x1024x64xf32>):
      %1 = "neptune.reduce"() ({
        %9 = "neptune.read"(%arg0) {map = #map} : (tensor<2x8x1024x64xf32>) -> f32
        %10 = "neptune.read"(%arg1) {map = #map1} : (tensor<2x8x1024x64xf32>) -> f32
        %11 = arith.mulf %9, %10 : f32
        "neptune.yield"(%11) : (f32) -> ()
      }, {
      }) {combiner = "add", domain = array<i64: 2, 8, 1024, 1024, 64>, identity = 0.000000e+00 : f32, neptune.axes = array<i64: 0, 1, 2, 4, 5>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<2x8x1024x1024xf32>
      %2 = "neptune.map"() ({
        %9 = "neptune.index"() {dim = 3 : i64} : () -> index
        %10 = "neptune.index"() {dim = 2 : i64} : () -> index
        %11 = arith.cmpi sle, %9, %10 : index
        %12 = "neptune.read"(%1) {map = #map2} : (tensor<2x8x1024x1024xf32>) -> f32
        %cst = arith.constant 1.250000e-01 : f32
        %13 = arith.mulf %12, %cst : f32
        %cst_0 = arith.constant 0xFF800000 : f32
        %14 = arith.select %11, %13, %cst_0 : f32
        "neptune.yield"(%14) : (f32) -> ()
      }) {domain = array<i64: 2, 8, 1024, 1024>, neptune.axes = array<i64: 0, 1, 2, 4>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<2x8x1024x1024xf32>
      %3 = "neptune.accumulate"(%arg3) ({
        %9 = "neptune.read"(%2) {map = #map2} : (tensor<2x8x1024x1024xf32>) -> f32
        "neptune.yield"(%9) : (f32) -> ()
      }, {
      }) {combiner = "max", domain = array<i64: 2, 8, 1024, 1024>, identity = 0xFF800000 : f32, neptune.axes = array<i64: 0, 1, 2, 4>, result_axes = array<i64: 0, 1, 2>} : (tensor<2x8x1024xf32>) -> tensor<2x8x1024xf32>
      %4 = "neptune.map"() ({
        %9 = "neptune.read"(%2) {map = #map2} : (tensor<2x8x1024x1024xf32>) -> f32
        %10 = "neptune.read"(%3) {map = #map3} : (tensor<2x8x1024xf32>) -> f32
        %cst = arith.constant 0xFF800000 : f32
        %11 = arith.cmpf oeq, %10, %cst : f32
        %cst_0 = arith.constant 0.000000e+00 : f32
        %12 = arith.select %11, %cst_0, %10 : f32
        %13 = arith.subf %9, %12 : f32
        %14 = math.exp %13 : f32
        "neptune.yield"(%14) : (f32) -> ()
      }) {domain = array<i64: 2, 8, 1024, 1024>, neptune.axes = array<i64: 0, 1, 2, 4>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<2x8x1024x1024xf32>
      %5 = "neptune.correct"() ({
        %9 = "neptune.read"(%arg4) {map = #map4} : (tensor<2x8x1024xf32>) -> f32
        %10 = "neptune.old"(%arg3) {map = #map4} : (tensor<2x8x1024xf32>) -> f32
        %11 = "neptune.new"(%3) {map = #map4} : (tensor<2x8x1024xf32>) -> f32
        %12 = arith.subf %10, %11 : f32
        %13 = math.exp %12 : f32
        %14 = arith.mulf %9, %13 : f32
        "neptune.yield"(%14) : (f32) -> ()
      }) {domain = array<i64: 2, 8, 1024>, form = "exponential", neptune.axes = array<i64: 0, 1, 2>, result_axes = array<i64: 0, 1, 2>} : () -> tensor<2x8x1024xf32>
      %6 = "neptune.accumulate"(%5) ({
        %9 = "neptune.read"(%4) {map = #map2} : (tensor<2x8x1024x1024xf32>) -> f32
        "neptune.yield"(%9) : (f32) -> ()
      }, {
      }) {combiner = "add", domain = array<i64: 2, 8, 1024, 1024>, identity = 0.000000e+00 : f32, neptune.axes = array<i64: 0, 1, 2, 4>, result_axes = array<i64: 0, 1, 2>} : (tensor<2x8x1024xf32>) -> tensor<2x8x1024xf32>
      %7 = "neptune.correct"() ({
        %9 = "neptune.read"(%arg5) {map = #map2} : (tensor<2x8x1024x64xf32>) -> f32
        %10 = "neptune.old"(%arg3) {map = #map3} : (tensor<2x8x1024xf32>) -> f32
        %11 = "neptune.new"(%3) {map = #map3} : (tensor<2x8x1024xf32>) -> f32
        %12 = arith.subf %10, %11 : f32
        %13 = math.exp %12 : f32
        %14 = arith.mulf %9, %13 : f32
        "neptune.yield"(%14) : (f32) -> ()
      }) {domain = array<i64: 2, 8, 1024, 64>, form = "exponential", neptune.axes = array<i64: 0, 1, 2, 3>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<2x8x1024x64xf32>
      %8 = "neptune.accumulate"(%7) ({
        %9 = "neptune.read"(%4) {map = #map} : (tensor<2x8x1024x1024xf32>) -> f32
        %10 = "neptune.read"(%arg2) {map = #map5} : (tensor<2x8x1024x64xf32>) -> f32
        %11 = arith.mulf %9, %10 : f32
        "neptune.yield"(%11) : (f32) -> ()
      }, {
      }) {combiner = "add", domain = array<i64: 2, 8, 1024, 64, 1024>, identity = 0.000000e+00 : f32, neptune.axes = array<i64: 0, 1, 2, 3, 4>, result_axes = array<i64: 0, 1, 2, 3>} : (tensor<2x8x1024x64xf32>) -> tensor<2x8x1024x64xf32>
      "neptune.produce"(%3, %6, %8) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x8x1024xf32>, tensor<2x8x1024xf32>, tensor<2x8x1024x64xf32>) -> ()
    }, {
    ^bb0(%arg3: tensor<2x8x1024xf32>, %arg4: tensor<2x8x1024xf32>, %arg5: tensor<2x8x1024x64xf32>):
      %1 = "neptune.map"() ({
        %2 = "neptune.read"(%arg5) {map = #map2} : (tensor<2x8x1024x64xf32>) -> f32
        %3 = "neptune.read"(%arg4) {map = #map3} : (tensor<2x8x1024xf32>) -> f32
        %4 = arith.divf %2, %3 : f32
        "neptune.yield"(%4) : (f32) -> ()
      }) {domain = array<i64: 2, 8, 1024, 64>, neptune.axes = array<i64: 0, 1, 2, 3>, result_axes = array<i64: 0, 1, 2, 3>} : () -> tensor<2x8x1024x64xf32>
      "neptune.produce"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<2x8x1024x64xf32>) -> ()
    }, {
    ^bb0(%arg3: index, %arg4: index, %arg5: index, %arg6: index, %arg7: index, %arg8: index):
      %c-1 = arith.constant -1 : index
      %1 = arith.muli %arg7, %c-1 : index
      %2 = arith.addi %arg5, %1 : index
      %c0 = arith.constant 0 : index
      %3 = arith.cmpi sge, %2, %c0 : index
      "neptune.yield"(%3) : (i1) -> ()
    }) {axis = 4 : i64, axis_names = ["i", "j", "k", "l", "m", "n"], domain = array<i64: 2, 8, 1024, 64, 1024, 64>, neptune.derivation = ["max0: max of where((m <= k), (sum0[i, j, k, m] * 0.125), -inf): reads no earlier reduction", "sum1: exponential: f = g(x) * exp(-(@max0[i, j, k])), so sum1 <- (acc(sum1) * exp((max0_old - max0_new)))", "sum2: exponential: f = g(x) * exp(-(@max0[i, j, k])), so sum2 <- (acc(sum2) * exp((max0_old - max0_new)))", "sum1: re-basing: exp((where((m <= k), (sum0[i, j, k, m] * 0.125), -inf) - max0_new)) == (exp((where((m <= k), (sum0[i, j, k, m] * 0.125), -inf) - max0_old)) * exp((max0_old - max0_new))): proved (normal form)", "sum1: homomorphism: ((acc(sum1) + acc(sum1*)) * exp((max0_old - max0_new))) == ((acc(sum1) * exp((max0_old - max0_new))) + (acc(sum1*) * exp((max0_old - max0_new)))): proved (normal form)", "sum1: identity: (0 * exp((max0_old - max0_new))) == 0: proved (normal form)", "sum1: composition: ((acc(sum1) * exp((max0_old - @('mid', 'max0')))) * exp((@('mid', 'max0') - max0_new))) == (acc(sum1) * exp((max0_old - max0_new))): proved (normal form)", "sum1: composition: (acc(sum1) * exp((max0_old - max0_old))) == acc(sum1): proved (normal form)", "sum2: re-basing: (exp((where((m <= k), (sum0[i, j, k, m] * 0.125), -inf) - max0_new)) * arg2[i, j, m, l]) == ((exp((where((m <= k), (sum0[i, j, k, m] * 0.125), -inf) - max0_old)) * arg2[i, j, m, l]) * exp((max0_old - max0_new))): proved (normal form)", "sum2: homomorphism: ((acc(sum2) + acc(sum2*)) * exp((max0_old - max0_new))) == ((acc(sum2) * exp((max0_old - max0_new))) + (acc(sum2*) * exp((max0_old - max0_new)))): proved (normal form)", "sum2: identity: (0 * exp((max0_old - max0_new))) == 0: proved (normal form)", "sum2: composition: ((acc(sum2) * exp((max0_old - @('mid', 'max0')))) * exp((@('mid', 'max0') - max0_new))) == (acc(sum2) * exp((max0_old - max0_new))): proved (normal form)", "sum2: composition: (acc(sum2) * exp((max0_old - max0_old))) == acc(sum2): proved (normal form)", "right in floats on 508 inputs that hurt: at most twice the error of the program as written, NaN and infinities where it has them"], neptune.proof = "proved", neptune.tile = array<i64: 1, 1, 128, 0, 128, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : () -> tensor<2x8x1024x64xf32>
    return %0 : tensor<2x8x1024x64xf32>
  }
}

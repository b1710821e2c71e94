// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// inputs: 2x4xf64 2x3xf64 2xi64<2
func.func @main(%0: tensor<2x4xf64>, %1: tensor<2x3xf64>, %3: tensor<2xi64>) -> tensor<2x7xf64> {
  %2 = tensor.concat dim(1) %0, %1 : (tensor<2x4xf64>, tensor<2x3xf64>) -> tensor<2x7xf64>
  %4 = tensor.empty() : tensor<2x7xf64>
  %5 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<2xi64>) outs(%4 : tensor<2x7xf64>) {
  ^bb0(%a: i64, %o: f64):
    %r = arith.index_cast %a : i64 to index
    %j1 = linalg.index 1 : index
    %m = tensor.extract %2[%r, %j1] : tensor<2x7xf64>
    linalg.yield %m : f64
  } -> tensor<2x7xf64>
  return %5 : tensor<2x7xf64>
}

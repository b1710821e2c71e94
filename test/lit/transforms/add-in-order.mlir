// On a CPU one thread runs the programs that add to the same elements, so an addition to a result in
// memory is a load, a sum and a store, of what of the tile lies in front of the end of the strip.
// RUN: neptune-opt %s --add-in-order | filecheck %s

// CHECK-LABEL: func.func @add
// CHECK-SAME: (%[[TILE:.*]]: tensor<16x64xf32>, %[[STRIP:.*]]: tensor<?x64xf32>, %[[ROW:.*]]: index)
// CHECK: %[[EXTENT:.*]] = tensor.dim %[[STRIP]]
// CHECK: %[[N:.*]] = affine.min
// CHECK: %[[PART:.*]] = tensor.extract_slice %[[TILE]][0, 0] [%[[N]], 64] [1, 1]
// CHECK: %[[OLD:.*]] = tensor.extract_slice %[[STRIP]][%[[ROW]], 0] [%[[N]], 64] [1, 1]
// CHECK: %[[NEW:.*]] = linalg.generic
// CHECK-SAME: ins(%[[PART]] : tensor<?x64xf32>) outs(%[[OLD]] : tensor<?x64xf32>)
// CHECK: arith.addf
// CHECK: %[[S:.*]] = tensor.insert_slice %[[NEW]] into %[[STRIP]][%[[ROW]], 0] [%[[N]], 64] [1, 1]
// CHECK: return %[[S]]
func.func @add(%tile: tensor<16x64xf32>, %strip: tensor<?x64xf32>, %row: index) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %s = "neptune.add_slice"(%tile, %strip, %row, %c0) : (tensor<16x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  return %s : tensor<?x64xf32>
}

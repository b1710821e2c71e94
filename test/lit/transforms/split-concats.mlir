// RUN: neptune-opt %s --split-concats | filecheck %s

// A short part is one more term of a reduction; a slice reads the part that it selects.

// CHECK-LABEL: func.func @sink
// CHECK-NOT: tensor.concat
// CHECK: %[[LONG:.*]] = linalg.reduce {{.*}} ins(%arg0 : tensor<4x48xf32>) outs(%arg2
// CHECK: %[[ALL:.*]] = linalg.reduce {{.*}} ins(%arg1 : tensor<4x1xf32>) outs(%[[LONG]]
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[ALL]] : tensor<4x48xf32>, tensor<4xf32>)
// CHECK-NOT: tensor.extract_slice
#row = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> (i)>
func.func @sink(%a: tensor<4x48xf32>, %b: tensor<4x1xf32>, %init: tensor<4xf32>)
    -> tensor<4x48xf32> {
  %c = tensor.concat dim(1) %a, %b : (tensor<4x48xf32>, tensor<4x1xf32>) -> tensor<4x49xf32>
  %m = linalg.reduce { arith.maximumf } ins(%c : tensor<4x49xf32>) outs(%init : tensor<4xf32>)
      dimensions = [1]
  %new = tensor.empty() : tensor<4x49xf32>
  %d = linalg.generic {indexing_maps = [#row, #one, #row],
                       iterator_types = ["parallel", "parallel"]}
      ins(%c, %m : tensor<4x49xf32>, tensor<4xf32>) outs(%new : tensor<4x49xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %z = arith.subf %x, %y : f32
    linalg.yield %z : f32
  } -> tensor<4x49xf32>
  %s = tensor.extract_slice %d[0, 0] [4, 48] [1, 1] : tensor<4x49xf32> to tensor<4x48xf32>
  return %s : tensor<4x48xf32>
}

// Products of heads that are joined from parts: a sum of contractions, through reshapes and
// transposes. What is not joined is sliced where a slice is read where it lies.

// CHECK-LABEL: func.func @heads
// CHECK-NOT: tensor.concat
// CHECK-DAG: %[[LOW:.*]] = tensor.extract_slice %arg2[0, 0] [5, 8] [1, 1]
// CHECK-DAG: %[[HIGH:.*]] = tensor.extract_slice %arg2[0, 8] [5, 8] [1, 1]
// CHECK: %[[FIRST:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x5xf32>) outs(%arg3
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x5xf32>) outs(%[[FIRST]]
func.func @heads(%a: tensor<1x4x8xf32>, %b: tensor<1x4x8xf32>, %k: tensor<5x16xf32>,
                 %init: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %c = tensor.concat dim(2) %a, %b
      : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x16xf32>
  %q = tensor.collapse_shape %c [[0, 1], [2]] : tensor<1x4x16xf32> into tensor<4x16xf32>
  %new = tensor.empty() : tensor<16x5xf32>
  %t = linalg.transpose ins(%k : tensor<5x16xf32>) outs(%new : tensor<16x5xf32>)
      permutation = [1, 0]
  %s = linalg.matmul ins(%q, %t : tensor<4x16xf32>, tensor<16x5xf32>)
      outs(%init : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %s : tensor<4x5xf32>
}

// A pad is a concatenation with a scalar; positions count from the start of the whole.

// CHECK-LABEL: func.func @padded
// CHECK-NOT: tensor.pad
// CHECK: tensor.splat %arg1{{.*}} : tensor<4x1xf32>
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x1xf32>)
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x9xf32>)
// CHECK: %[[AT:.*]] = linalg.index 1
// CHECK: arith.addi %[[AT]], %{{.*}} : index
func.func @padded(%a: tensor<4x9xf32>, %with: f32, %init: tensor<4xf32>) -> tensor<4xf32> {
  %p = tensor.pad %a low[0, 1] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %with : f32
  } : tensor<4x9xf32> to tensor<4x10xf32>
  %s = linalg.generic {indexing_maps = [#row, #one], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<4x10xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i64
    %f = arith.sitofp %k : i64 to f32
    %w = arith.mulf %x, %f : f32
    %z = arith.addf %o, %w : f32
    linalg.yield %z : f32
  } -> tensor<4xf32>
  return %s : tensor<4xf32>
}

// Two long parts stay one loop, and so does what the program returns.

// CHECK-LABEL: func.func @stays
// CHECK-NEXT: %[[LONG:.*]] = tensor.concat dim(1) %arg0, %arg1
// CHECK-NEXT: linalg.reduce {{.*}} ins(%[[LONG]]
// CHECK-NEXT: %[[WHOLE:.*]] = tensor.concat dim(1) %arg0, %arg2
// CHECK-NEXT: linalg.reduce {{.*}} ins(%[[WHOLE]]
func.func @stays(%a: tensor<4x48xf32>, %b: tensor<4x20xf32>, %c: tensor<4x1xf32>,
                 %init: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4x49xf32>) {
  %long = tensor.concat dim(1) %a, %b
      : (tensor<4x48xf32>, tensor<4x20xf32>) -> tensor<4x68xf32>
  %m = linalg.reduce { arith.maximumf } ins(%long : tensor<4x68xf32>) outs(%init : tensor<4xf32>)
      dimensions = [1]
  %whole = tensor.concat dim(1) %a, %c
      : (tensor<4x48xf32>, tensor<4x1xf32>) -> tensor<4x49xf32>
  %n = linalg.reduce { arith.maximumf } ins(%whole : tensor<4x49xf32>) outs(%init : tensor<4xf32>)
      dimensions = [1]
  return %m, %n, %whole : tensor<4xf32>, tensor<4xf32>, tensor<4x49xf32>
}

// Parts that are written to a new tensor are a concatenation, in whatever order they come.

// CHECK-LABEL: func.func @written
// CHECK-NOT: tensor.insert_slice
// CHECK: %[[R:.*]] = tensor.concat dim(1) %arg0, %arg1 : {{.*}} -> tensor<4x24xf32>
// CHECK: return %[[R]]
func.func @written(%a: tensor<4x8xf32>, %b: tensor<4x16xf32>) -> tensor<4x24xf32> {
  %new = tensor.empty() : tensor<4x24xf32>
  %s = tensor.insert_slice %b into %new[0, 8] [4, 16] [1, 1]
      : tensor<4x16xf32> into tensor<4x24xf32>
  %r = tensor.insert_slice %a into %s[0, 0] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x24xf32>
  return %r : tensor<4x24xf32>
}

// Not where parts overlap, where something is left of what was there, or is read before.

// CHECK-LABEL: func.func @others
// CHECK-NOT: tensor.concat
func.func @others(%a: tensor<4x8xf32>, %old: tensor<4x16xf32>)
    -> (tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>) {
  %new = tensor.empty() : tensor<4x16xf32>
  %half = tensor.insert_slice %a into %new[0, 0] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x16xf32>
  %over = tensor.insert_slice %a into %half[0, 4] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x16xf32>
  %kept = tensor.insert_slice %a into %old[0, 0] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x16xf32>
  %first = tensor.insert_slice %a into %new[0, 0] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x16xf32>
  %both = tensor.insert_slice %a into %first[0, 8] [4, 8] [1, 1]
      : tensor<4x8xf32> into tensor<4x16xf32>
  return %over, %kept, %first, %both
      : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
}

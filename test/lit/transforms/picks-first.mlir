// What one position of a loaded tile gives is taken before the tile is reduced; a position of what a
// kernel computed is left where it is.
// RUN: neptune-opt %s --picks-first | filecheck %s

// CHECK-LABEL: func.func @loaded
// CHECK: tensor.extract_slice %arg0
// CHECK-NEXT: linalg.generic
// CHECK: arith.cmpi eq
// CHECK: arith.maximumf
// CHECK-LABEL: func.func @computed
// CHECK: arith.maximumf
// CHECK: arith.cmpi eq

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @loaded(%x: tensor<16x64xbf16>, %at: tensor<16xi64>) -> (tensor<16xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0.0 : bf16
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<16xf32>
  %out:2 = scf.forall (%b) in (1) shared_outs(%d0 = %e, %d1 = %e) -> (tensor<16xf32>, tensor<16xf32>) {
    %o = tensor.empty() : tensor<16xf32>
    %start = linalg.fill ins(%low : f32) outs(%o : tensor<16xf32>) -> tensor<16xf32>
    %nil = linalg.fill ins(%zero : f32) outs(%o : tensor<16xf32>) -> tensor<16xf32>
    %t = tensor.extract_slice %at[0] [16] [1] : tensor<16xi64> to tensor<16xi64>
    %xt = tensor.extract_slice %x[0, 0] [16, 64] [1, 1] : tensor<16x64xbf16> to tensor<16x64xbf16>
    %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%xt : tensor<16x64xbf16>) outs(%start : tensor<16xf32>) {
    ^bb0(%a: bf16, %acc: f32):
      %w = arith.extf %a : bf16 to f32
      %m = arith.maximumf %acc, %w : f32
      linalg.yield %m : f32
    } -> tensor<16xf32>
    %one = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%t, %xt : tensor<16xi64>, tensor<16x64xbf16>) outs(%nil : tensor<16xf32>) {
    ^bb0(%k: i64, %a: bf16, %acc: f32):
      %j = linalg.index 1 : index
      %v = arith.index_cast %k : i64 to index
      %c = arith.cmpi eq, %j, %v : index
      %s = arith.select %c, %a, %none : bf16
      %w = arith.extf %s : bf16 to f32
      %m = arith.addf %acc, %w : f32
      linalg.yield %m : f32
    } -> tensor<16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %max into %d0[0] [16] [1] : tensor<16xf32> into tensor<16xf32>
      tensor.parallel_insert_slice %one into %d1[0] [16] [1] : tensor<16xf32> into tensor<16xf32>
    }
  }
  return %out#0, %out#1 : tensor<16xf32>, tensor<16xf32>
}

func.func @computed(%x: tensor<16x64xf32>, %at: tensor<16xi64>) -> (tensor<16xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<16xf32>
  %out:2 = scf.forall (%b) in (1) shared_outs(%d0 = %e, %d1 = %e) -> (tensor<16xf32>, tensor<16xf32>) {
    %o = tensor.empty() : tensor<16xf32>
    %all = tensor.empty() : tensor<16x64xf32>
    %start = linalg.fill ins(%low : f32) outs(%o : tensor<16xf32>) -> tensor<16xf32>
    %nil = linalg.fill ins(%zero : f32) outs(%o : tensor<16xf32>) -> tensor<16xf32>
    %t = tensor.extract_slice %at[0] [16] [1] : tensor<16xi64> to tensor<16xi64>
    %xt = tensor.extract_slice %x[0, 0] [16, 64] [1, 1] : tensor<16x64xf32> to tensor<16x64xf32>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%xt : tensor<16x64xf32>) outs(%all : tensor<16x64xf32>) {
    ^bb0(%a: f32, %w: f32):
      %m = arith.mulf %a, %a : f32
      linalg.yield %m : f32
    } -> tensor<16x64xf32>
    %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%y : tensor<16x64xf32>) outs(%start : tensor<16xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %m = arith.maximumf %acc, %a : f32
      linalg.yield %m : f32
    } -> tensor<16xf32>
    %one = linalg.generic {indexing_maps = [#row, #id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%t, %y : tensor<16xi64>, tensor<16x64xf32>) outs(%nil : tensor<16xf32>) {
    ^bb0(%k: i64, %a: f32, %acc: f32):
      %j = linalg.index 1 : index
      %v = arith.index_cast %k : i64 to index
      %c = arith.cmpi eq, %j, %v : index
      %s = arith.select %c, %a, %zero : f32
      %m = arith.addf %acc, %s : f32
      linalg.yield %m : f32
    } -> tensor<16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %max into %d0[0] [16] [1] : tensor<16xf32> into tensor<16xf32>
      tensor.parallel_insert_slice %one into %d1[0] [16] [1] : tensor<16xf32> into tensor<16xf32>
    }
  }
  return %out#0, %out#1 : tensor<16xf32>, tensor<16xf32>
}

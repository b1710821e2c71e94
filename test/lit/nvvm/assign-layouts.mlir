// Matrix products fix the layouts of their accumulators; rows of them are replicated over lanes;
// what must change threads is copied, with a remark.
// RUN: neptune-opt %s --assign-layouts=target=sm_80 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.err

// CHECK: tensor.extract_slice %arg0{{.*}}neptune.layout = "shared[2*128 7>>0]"
// CHECK: scf.for
// CHECK-DAG: tensor.extract_slice %arg1{{.*}}neptune.layout = "shared[2*128 7>>0]"
// CHECK-DAG: neptune.layout = "reg[1:2*1 0:2*8 1:4*8] lane[1:4*2 0:8*1] warp[0:4*16]", neptune.via = "mma"
// the row maximum: columns of the accumulator have become replication
// CHECK-DAG: neptune.layout = "reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]", neptune.via = "registers"
// CHECK: neptune.layout = ["reg[0:2*8] lane[-:4 0:8*1] warp[0:4*16]"]
// CHECK-SAME: neptune.stages = 2
// CHECK: neptune.target = "sm_80", neptune.warps = 4

// REMARK: remark: a tile of [64] moves to other threads

#mk = affine_map<(i, j, k) -> (i, k)>
#nk = affine_map<(i, j, k) -> (j, k)>
#mn = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
func.func @rows(%q: tensor<64x64xf16>, %k: tensor<256x64xf16>) -> (tensor<64xf32>, tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<64xf32>
  %e1 = tensor.empty() : tensor<64x64xf32>
  %out:2 = scf.forall (%b) in (1) shared_outs(%dst = %e0, %dst2 = %e1) -> (tensor<64xf32>, tensor<64x64xf32>) {
    %qt = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf16> to tensor<64x64xf16>
    %e = tensor.empty() : tensor<64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    %m = scf.for %j = %c0 to %c256 step %c32 iter_args(%m0 = %init) -> (tensor<64xf32>) {
      %kt = tensor.extract_slice %k[%j, 0] [32, 64] [1, 1] : tensor<256x64xf16> to tensor<32x64xf16>
      %es = tensor.empty() : tensor<64x32xf32>
      %z = linalg.fill ins(%zero : f32) outs(%es : tensor<64x32xf32>) -> tensor<64x32xf32>
      %s = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<64x64xf16>, tensor<32x64xf16>) outs(%z : tensor<64x32xf32>) {
      ^bb0(%x: f16, %y: f16, %acc: f32):
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %p = arith.mulf %xf, %yf : f32
        %r = arith.addf %acc, %p : f32
        linalg.yield %r : f32
      } -> tensor<64x32xf32>
      %n = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%s : tensor<64x32xf32>) outs(%m0 : tensor<64xf32>) {
      ^bb0(%x: f32, %acc: f32):
        %r = arith.maximumf %acc, %x : f32
        linalg.yield %r : f32
      } -> tensor<64xf32>
      scf.yield %n : tensor<64xf32>
    }
    // an outer product: its columns are rows of the accumulator
    %eo = tensor.empty() : tensor<64x64xf32>
    %o = linalg.generic {indexing_maps = [#row, #col, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m, %m : tensor<64xf32>, tensor<64xf32>) outs(%eo : tensor<64x64xf32>) {
    ^bb0(%x: f32, %y: f32, %u: f32):
      %r = arith.mulf %x, %y : f32
      linalg.yield %r : f32
    } -> tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %m into %dst[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
      tensor.parallel_insert_slice %o into %dst2[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<64x64xf32>
    }
  } {neptune.kernel = "rows_0"}
  return %out#0, %out#1 : tensor<64xf32>, tensor<64x64xf32>
}

// RUN: neptune-opt %s --canonicalize --apply-patterns --convert-elementwise-to-linalg --raise-linalg --inline-maps --defer --rolling-update --prune-masks --tile=sizes=1x64 --privatize=chunks=0,programs=264,each=2 --tile=columns=32 --lower-correct --lower-to-tiles --canonicalize --cse 2>&1 | filecheck %s

// Data say where each row ends. Chunks are parts of what is live of a row, and there are more of them
// than programs run at once: 16 times as many as asked for, of 32 tiles at least. (Rows ask for four times what the option says.)

#x = affine_map<(b, j) -> (b, j)>
#b = affine_map<(b, j) -> (b)>

// CHECK-DAG: #[[SOME:.*]] = affine_map<()[s0] -> (s0 * 8)>
// CHECK-DAG: #[[PIECES:.*]] = affine_map<()[s0] -> (s0 * 128)>
// CHECK-DAG: #[[LONG:.*]] = affine_map<()[s0, s1] -> ((s0 ceildiv 64) floordiv 32, s1)>
// CHECK-DAG: #[[TILES:.*]] = affine_map<(d0) -> (d0 ceildiv 64)>
// CHECK-LABEL: func.func @logsumexp
// CHECK: %[[DEVICE:.*]] = "neptune.multiprocessors"
// CHECK: affine.apply #[[SOME]]()[%[[DEVICE]]]
// CHECK: affine.apply #[[PIECES]]()[%[[DEVICE]]]
// CHECK: affine.min #[[LONG]]()
// CHECK: scf.forall (%[[C:.*]], %[[B:.*]]) in (%[[N:.*]], %{{.*}}) shared_outs
// CHECK: %[[LIVE:.*]] = tensor.extract %arg1[%[[B]]]
// CHECK: arith.index_cast %[[LIVE]]
// CHECK: %[[ALL:.*]] = affine.apply #[[TILES]](%{{.*}})
// CHECK: %[[DONE:.*]] = arith.muli %[[ALL]], %[[C]]
// CHECK: arith.divui %[[DONE]], %[[N]]
func.func @logsumexp(%x: tensor<?x?xf32>, %lengths: tensor<?xi32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#x, #b, #b], iterator_types = ["parallel", "reduction"]}
      ins(%x, %lengths : tensor<?x?xf32>, tensor<?xi32>) outs(%m0 : tensor<?xf32>) {
    ^bb0(%v: f32, %l: i32, %a: f32):
      %j = linalg.index 1 : index
      %end = arith.index_cast %l : i32 to index
      %live = arith.cmpi slt, %j, %end : index
      %w = arith.select %live, %v, %low : f32
      %r = arith.maximumf %w, %a : f32
      linalg.yield %r : f32
  } -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#x, #b, #b, #b], iterator_types = ["parallel", "reduction"]}
      ins(%x, %lengths, %m : tensor<?x?xf32>, tensor<?xi32>, tensor<?xf32>) outs(%s0 : tensor<?xf32>) {
    ^bb0(%v: f32, %l: i32, %g: f32, %a: f32):
      %j = linalg.index 1 : index
      %end = arith.index_cast %l : i32 to index
      %live = arith.cmpi slt, %j, %end : index
      %w = arith.select %live, %v, %low : f32
      %d = arith.subf %w, %g : f32
      %p = math.exp %d : f32
      %r = arith.addf %p, %a : f32
      linalg.yield %r : f32
  } -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// Ops about warps, as text and back; cse and canonicalize leave them where they are.
// RUN: neptune-opt %s --canonicalize --cse | neptune-opt - | filecheck %s

// CHECK: "neptune.await_turn"()
// CHECK: "neptune.warp_all"(%{{.*}}) : (tensor<128xi1>) -> i1
// CHECK: "neptune.issue_fence"()
// CHECK: "neptune.join_lanes"(%{{.*}}) {distances = array<i64: 1, 2>, warps = array<i64: 1, 4>}
// CHECK: "neptune.give_turn"()

func.func @warps(%rows: tensor<128xi1>, %part: tensor<128xf32>) -> (i1, tensor<128xf32>) {
  "neptune.await_turn"() : () -> ()
  %all = "neptune.warp_all"(%rows) : (tensor<128xi1>) -> i1
  "neptune.issue_fence"() : () -> ()
  %sum = "neptune.join_lanes"(%part) {distances = array<i64: 1, 2>, warps = array<i64: 1, 4>} : (tensor<128xf32>) -> tensor<128xf32>
  "neptune.give_turn"() : () -> ()
  return %all, %sum : i1, tensor<128xf32>
}

// Nothing fused: each reduction, with the maps before it, is a kernel of its own.
//
// What fusion gains is measured against this: the same code generator, tiles, vectors and threads.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %pruned = "transform.neptune.prune_masks"(%inlined) : (!transform.any_op) -> !transform.any_op
    // KiB of shared memory for tiles.
    %shared = transform.tune.knob<"shared"> = 0 from options = i64 -> !transform.any_param
    %tiled = "transform.neptune.tile"(%pruned, %shared) {axes = ["shared"]}
        : (!transform.any_op, !transform.any_param) -> !transform.any_op
    transform.yield
  }
}

// As `streamed`, but powers become products before the reductions are fused.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %largest = transform.tune.knob<"largest_power"> = 4 from options = [1, 2, 3, 4]
        -> !transform.any_param
    %products = "transform.neptune.apply_pass"(%inlined, %largest)
        {name = "whole-powers", options = ["up-to"]}
        : (!transform.any_op, !transform.any_param) -> !transform.any_op
    %deferred = "transform.neptune.defer"(%products) : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%deferred)
        : (!transform.any_op) -> !transform.any_op
    %rows = transform.tune.knob<"rows"> = 64 from options = [16, 32, 64, 128]
        -> !transform.any_param
    %tiled = "transform.neptune.tile"(%fused, %rows) {axes = ["rows"]}
        : (!transform.any_op, !transform.any_param) -> !transform.any_op
    transform.yield
  }
}

// Deep products apart: each tile of the stream is a program of its own, and what they give is joined.
//
// For streams of products that sum over more than a program can keep of their factors (the logits of
// a linear layer, reduced over its classes): from tile to tile of the stream a program would keep
// nothing but the running values, so nothing is lost by cutting there, and programs are many.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %deferred = "transform.neptune.defer"(%inlined) : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%deferred)
        : (!transform.any_op) -> !transform.any_op
    %pruned = "transform.neptune.prune_masks"(%fused) : (!transform.any_op) -> !transform.any_op

    // 0 leaves a size to the rule of the pass.
    %rows = transform.tune.knob<"rows"> = 0 from options = [0, 64, 128, 192] -> !transform.any_param
    %stream = transform.tune.knob<"stream"> = 0 from options = [0, 64, 128, 192, 256]
        -> !transform.any_param
    // 1: sizes for warp groups of 64 rows.
    %groups = transform.tune.knob<"warp_groups"> = 0 from options = [0, 1]
        -> !transform.any_param
    %cut = "transform.neptune.tile"(%pruned, %rows, %stream, %groups)
        {axes = ["rows", "stream", "warp_groups"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param)
        -> !transform.any_op

    %none = transform.param.constant 0 : i64 -> !transform.any_param
    // Tiles of a chunk.
    %tiles = transform.tune.knob<"tiles"> = 1 from options = i64 -> !transform.any_param
    // Where only a call knows how many tiles there are: as many chunks as it takes for so many programs,
    // at a launch for so many on each multiprocessor. A chunk then runs a loop over its tiles.
    %programs = transform.tune.knob<"programs"> = 0 from options = i64 -> !transform.any_param
    %each = transform.tune.knob<"each"> = 0 from options = i64 -> !transform.any_param
    %split = "transform.neptune.privatize"(%cut, %none, %programs, %tiles, %each)
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param) -> !transform.any_op
    %tiled = "transform.neptune.tile"(%split) {axes = []} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

// Factors ahead of their products, as by `ahead`, and those that sums of their rows only scale.
//
// For products of which programs would compute such a factor (x r g, where r is of a row) for longer
// than they multiply: another kernel stores it, with its scale, and the copy engine brings both.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %scaled = "transform.neptune.apply_pass"(%inlined) {name = "scaled-factors"}
        : (!transform.any_op) -> !transform.any_op
    %deferred = "transform.neptune.defer"(%scaled) : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%deferred) {ahead = true}
        : (!transform.any_op) -> !transform.any_op
    %pruned = "transform.neptune.prune_masks"(%fused) : (!transform.any_op) -> !transform.any_op

    // 0 leaves a size to the rule of the pass.
    %rows = transform.tune.knob<"rows"> = 0 from options = [0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256]
        -> !transform.any_param
    %stream = transform.tune.knob<"stream"> = 0 from options = [0, 16, 32, 64, 80, 96, 112, 128, 160, 176, 192, 256]
        -> !transform.any_param
    // Registers that products may take, and KiB of shared memory for tiles: what the rule for rows
    // and streamed elements has to fit into.
    %held = transform.tune.knob<"held"> = 0 from options = [0, 8192, 16384, 24576, 32768, 65536]
        -> !transform.any_param
    %shared = transform.tune.knob<"shared"> = 0 from options = i64 -> !transform.any_param
    // 1: sizes for warp groups of 64 rows.
    %groups = transform.tune.knob<"warp_groups"> = 0 from options = [0, 1]
        -> !transform.any_param
    // 1: for launches of few programs.
    %few = transform.tune.knob<"few"> = 0 from options = [0, 1] -> !transform.any_param
    // The least length of streams that these are for.
    %length = transform.tune.knob<"length"> = 0 from options = i64 -> !transform.any_param
    // Rows of a matrix product that cost no more than one.
    %least = transform.tune.knob<"least"> = 0 from options = [0, 8, 16] -> !transform.any_param
    // Rows and columns of tiles of products that sum over nothing but the stream.
    %product_rows = transform.tune.knob<"product_rows"> = 0 from options = [0, 64, 128, 192]
        -> !transform.any_param
    %product_columns = transform.tune.knob<"product_columns"> = 0 from options = [0, 64, 128, 192, 256]
        -> !transform.any_param
    // 32-bit words of a tile without products, at most.
    %words = transform.tune.knob<"words"> = 0 from options = [0, 1024, 2048, 4096]
        -> !transform.any_param
    %tiled = "transform.neptune.tile"(%pruned, %rows, %stream, %held, %shared, %groups, %few, %length, %least, %product_rows, %product_columns, %words)
        {axes = ["rows", "stream", "held", "shared", "warp_groups", "few", "length", "least", "product_rows", "product_columns", "words"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param) -> !transform.any_op
    transform.yield
  }
}

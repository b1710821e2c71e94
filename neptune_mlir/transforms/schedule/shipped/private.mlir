// Private reductions: the stream is cut into chunks that run in parallel and are joined.
//
// For programs with few result rows and a long stream (decode), where rows alone leave the machine
// idle. Each chunk keeps private running values; a global nest re-bases and joins them.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %deferred = "transform.neptune.defer"(%inlined) : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%deferred) {alone = true}
        : (!transform.any_op) -> !transform.any_op
    %pruned = "transform.neptune.prune_masks"(%fused) : (!transform.any_op) -> !transform.any_op

    // 0 leaves a size to the rule of the pass.
    %rows = transform.tune.knob<"rows"> = 0 from options = [0, 1, 2, 4, 8, 16, 32, 64, 128, 192]
        -> !transform.any_param
    %stream = transform.tune.knob<"stream"> = 0 from options = [0, 16, 32, 64, 128, 256]
        -> !transform.any_param
    // Streamed elements of streams with products alone.
    %product_stream = transform.tune.knob<"product_stream"> = 0 from options = [0, 16, 32, 64, 128, 256]
        -> !transform.any_param
    // Rows of a matrix product that cost no more than one.
    %least = transform.tune.knob<"least"> = 0 from options = [0, 8, 16] -> !transform.any_param
    // 1: sizes for warp groups of 64 rows.
    %groups = transform.tune.knob<"warp_groups"> = 0 from options = [0, 1]
        -> !transform.any_param
    // KiB of shared memory for tiles.
    %shared = transform.tune.knob<"shared"> = 0 from options = i64 -> !transform.any_param
    // 32-bit words of a tile without products, at most.
    %words = transform.tune.knob<"words"> = 0 from options = [0, 1024, 2048, 4096]
        -> !transform.any_param
    %in_chunks = transform.param.constant 1 : i64 -> !transform.any_param
    %cut = "transform.neptune.tile"(%pruned, %rows, %stream, %product_stream, %least, %groups, %shared, %in_chunks, %words)
        {axes = ["rows", "stream", "product_stream", "least", "warp_groups", "shared", "chunks", "words"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param) -> !transform.any_op

    // 0 chunks: as many as it takes for so many programs, a number that the extents decide; at a
    // launch, for so many on each multiprocessor of the device.
    %chunks = transform.tune.knob<"chunks"> = 8 from options = [0, 2, 4, 8, 16, 32, 64, 128]
        -> !transform.any_param
    %programs = transform.tune.knob<"programs"> = 0 from options = i64 -> !transform.any_param
    %each = transform.tune.knob<"each"> = 0 from options = i64 -> !transform.any_param
    %tiles = transform.param.constant 0 : i64 -> !transform.any_param
    %split = "transform.neptune.privatize"(%cut, %chunks, %programs, %tiles, %each)
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param) -> !transform.any_op

    // The join has a program for each row and so many columns.
    %columns = transform.tune.knob<"columns"> = 0 from options = [0, 32, 64, 128, 256]
        -> !transform.any_param
    // Of what is not cut: as of `streamed`.
    %held = transform.tune.knob<"held"> = 0 from options = [0, 8192, 16384, 24576, 32768, 65536]
        -> !transform.any_param
    %tiled = "transform.neptune.tile"(%split, %columns, %held, %shared, %words) {axes = ["columns", "held", "shared", "words"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param) -> !transform.any_op
    transform.yield
  }
}

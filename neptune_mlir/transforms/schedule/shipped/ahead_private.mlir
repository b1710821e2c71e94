// Factors ahead of their products, as by `ahead`, and the products' streams in chunks, as by `private`.
//
// For calls with few rows: kernels before compute the factors, and rows alone leave the machine idle.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %inlined = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %deferred = "transform.neptune.defer"(%inlined) : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%deferred) {ahead = true}
        : (!transform.any_op) -> !transform.any_op
    %pruned = "transform.neptune.prune_masks"(%fused) : (!transform.any_op) -> !transform.any_op

    // Of the products: rows of a tile, those that cost no more than one, and 1 for warp groups.
    %rows = transform.tune.knob<"rows"> = 0 from options = [0, 1, 2, 4, 8, 16, 32, 64, 128, 192]
        -> !transform.any_param
    %stream = transform.tune.knob<"stream"> = 0 from options = [0, 16, 32, 64, 128, 256]
        -> !transform.any_param
    %least = transform.tune.knob<"least"> = 0 from options = [0, 8, 16] -> !transform.any_param
    %groups = transform.tune.knob<"warp_groups"> = 0 from options = [0, 1]
        -> !transform.any_param
    // KiB of shared memory for tiles.
    %shared = transform.tune.knob<"shared"> = 0 from options = i64 -> !transform.any_param
    %in_chunks = transform.param.constant 1 : i64 -> !transform.any_param
    %cut = "transform.neptune.tile"(%pruned, %rows, %stream, %least, %groups, %shared, %in_chunks)
        {axes = ["product_rows", "product_stream", "least", "warp_groups", "shared", "chunks"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param, !transform.any_param, !transform.any_param) -> !transform.any_op

    // As of `private`.
    %chunks = transform.tune.knob<"chunks"> = 8 from options = [0, 2, 4, 8, 16, 32, 64, 128]
        -> !transform.any_param
    %programs = transform.tune.knob<"programs"> = 0 from options = i64 -> !transform.any_param
    %each = transform.tune.knob<"each"> = 0 from options = i64 -> !transform.any_param
    %tiles = transform.param.constant 0 : i64 -> !transform.any_param
    %split = "transform.neptune.privatize"(%cut, %chunks, %programs, %tiles, %each) {products = true}
        : (!transform.any_op, !transform.any_param, !transform.any_param, !transform.any_param,
           !transform.any_param) -> !transform.any_op
    %columns = transform.tune.knob<"columns"> = 0 from options = [0, 32, 64, 128, 256]
        -> !transform.any_param
    %tiled = "transform.neptune.tile"(%split, %columns, %shared) {axes = ["columns", "shared"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param) -> !transform.any_op
    transform.yield
  }
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} attributes {sym_name = "softmax_sum"} in %module
        : (!transform.any_op) -> !transform.any_op
    %1 = "transform.neptune.inline_maps"(%f) : (!transform.any_op) -> !transform.any_op
    %2 = "transform.neptune.rolling_update"(%1) : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

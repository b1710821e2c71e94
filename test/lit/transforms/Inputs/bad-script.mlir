module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["arith.constant"]} in %m : (!transform.any_op) -> !transform.any_op
    %1 = "transform.neptune.defer"(%f) : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}

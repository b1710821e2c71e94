// RUN: not neptune-opt %s --float8-bits 2>&1 | filecheck %s

// Nothing computes in 8 bits.
// CHECK: float8-bits.mlir:[[#]]:{{[0-9]+}}: error: 'arith.addf' computes with f8E4M3FN, which is for what a program reads
// CHECK: hint: cast it to f16 or f32 first
#i = affine_map<(i) -> (i)>
func.func @sums(%x: tensor<8xf8E4M3FN>) -> tensor<8xf8E4M3FN> {
  %e = tensor.empty() : tensor<8xf8E4M3FN>
  %r = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf8E4M3FN>) outs(%e : tensor<8xf8E4M3FN>) {
  ^bb0(%a: f8E4M3FN, %c: f8E4M3FN):
    %y = arith.addf %a, %a : f8E4M3FN
    linalg.yield %y : f8E4M3FN
  } -> tensor<8xf8E4M3FN>
  return %r : tensor<8xf8E4M3FN>
}

// Calls whose types do not fit the function that a package adds.
// RUN: not neptune-opt %s --split-input-file --expand-calls 2>&1 | filecheck %s

// CHECK: :8:{{[0-9]+}}: error: 'lit_double' gives f32, and the call f64
func.func private @lit_double(f32) -> f64

func.func @result(%x: f32) -> f64 {
  %r = func.call @lit_double(%x) : (f32) -> f64
  return %r : f64
}

// -----
// CHECK: error: 'lit_norm' cannot be called on f32: 'lit_norm' takes 2 arguments, 1 were given
func.func private @lit_norm(f32) -> f32

func.func @number(%x: f32) -> f32 {
  %r = func.call @lit_norm(%x) : (f32) -> f32
  return %r : f32
}

// -----
// CHECK: error: 'lit_double' is a function of scalars, called on tensor<4xf32>, tensor<4xf32>
// CHECK: call it in the region of a linalg.generic
func.func private @lit_double(tensor<4xf32>) -> tensor<4xf32>

func.func @tensor(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = func.call @lit_double(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// RUN: neptune-opt %s --write-out-loops | filecheck %s
// RUN: neptune-opt %s '--write-out-loops=most=2' | filecheck %s --check-prefix=LONG

// What a loop collects along the first dimension is a concatenation.
// CHECK-LABEL: func.func @collects
// CHECK-NOT: scf.for
// CHECK-COUNT-3: tensor.expand_shape
// CHECK: tensor.concat dim(0)
// LONG-LABEL: func.func @collects
// LONG: scf.for
func.func @collects(%x: tensor<3x4xf32>, %h: tensor<4xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %steps = arith.constant 3 : index
  %e = tensor.empty() : tensor<3x4xf32>
  %r:2 = scf.for %i = %zero to %steps step %one iter_args(%c = %h, %o = %e) -> (tensor<4xf32>, tensor<3x4xf32>) {
    %here = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
    %n = arith.addf %here, %c : tensor<4xf32>
    %p = tensor.insert_slice %n into %o[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<3x4xf32>
    scf.yield %n, %p : tensor<4xf32>, tensor<3x4xf32>
  }
  return %r#1 : tensor<3x4xf32>
}

// What is read, or written in part, stays a chain of insertions. Loops of numbers stay.
// CHECK-LABEL: func.func @writes
// CHECK-COUNT-2: tensor.insert_slice
// CHECK-NOT: tensor.concat
// CHECK: scf.for {{.*}} -> (index)
func.func @writes(%x: tensor<3x4xf32>) -> (tensor<3x4xf32>, index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %steps = arith.constant 2 : index
  %r = scf.for %i = %zero to %steps step %one iter_args(%o = %x) -> (tensor<3x4xf32>) {
    %here = tensor.extract_slice %o[%i, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
    %n = arith.addf %here, %here : tensor<4xf32>
    %p = tensor.insert_slice %n into %o[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<3x4xf32>
    scf.yield %p : tensor<3x4xf32>
  }
  %s = scf.for %i = %zero to %steps step %one iter_args(%o = %zero) -> (index) {
    %n = arith.addi %o, %i : index
    scf.yield %n : index
  }
  return %r, %s : tensor<3x4xf32>, index
}

// RUN: neptune-opt %s --outline-kernels | filecheck %s
// RUN: not neptune-opt %s --outline-kernels=entry=g 2>&1 | filecheck %s --check-prefix=ENTRY

// RUN: not neptune-opt %S/Inputs/host-control-flow.mlir --outline-kernels 2>&1 | filecheck %s --check-prefix=FLOW

// FLOW: host-control-flow.mlir:4:8: error: 'scf.if' outside of any kernel makes a number that the host has to know
// ENTRY: no single function 'g' to compile

// The plan: one buffer with the rows of argument 0, and a grid of a quarter of them.
// CHECK: neptune.plan =
// CHECK-SAME: buffers{{.*}}dim{{.*}}, 0, 0], 64
// CHECK-SAME: grid{{.*}}ceildiv{{.*}}dim{{.*}}, 0, 0], 4
// CHECK-SAME: scale_rows

// The kernel: what was captured, the grid, the counter and the scratch; no host function is left.
// CHECK: func.func @scale_rows(%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<?x64xf32>,
// CHECK-SAME: %{{.*}}: index, %{{.*}}: f32, %[[GRID:.*]]: index, %[[COUNTER:.*]]: memref<1xi64>,
// CHECK-SAME: %{{.*}}: memref<?xi8>) attributes {llvm.emit_c_interface, neptune.grid_kernel}
// CHECK: scf.while
// CHECK: memref.atomic_rmw addi %{{.*}}, %[[COUNTER]]
// CHECK: } do {
// CHECK: scf.for {{.*}} step %c1
// CHECK: arith.remui %{{.*}}, %[[GRID]]
// CHECK: linalg.generic
// CHECK-NOT: func.func @f
func.func @f(%x: memref<?x64xf32>, %scale: f32) -> memref<?x64xf32> {
  %zero = arith.constant 0 : index
  %n = memref.dim %x, %zero : memref<?x64xf32>
  %blocks = affine.apply affine_map<()[n] -> (n ceildiv 4)>()[%n]
  %out = memref.alloc(%n) : memref<?x64xf32>
  scf.forall (%i) in (%blocks) {
    %at = affine.apply affine_map<(i) -> (i * 4)>(%i)
    %rows = affine.min affine_map<(i)[n] -> (i * -4 + n, 4)>(%i)[%n]
    %from = memref.subview %x[%at, 0] [%rows, 64] [1, 1]
      : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    %t = memref.alloc() : memref<4x64xf32>
    %part = memref.subview %t[0, 0] [%rows, 64] [1, 1]
      : memref<4x64xf32> to memref<?x64xf32, strided<[64, 1]>>
    memref.copy %from, %part
      : memref<?x64xf32, strided<[64, 1], offset: ?>> to memref<?x64xf32, strided<[64, 1]>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} outs(%t : memref<4x64xf32>) {
    ^bb0(%a: f32):
      %y = arith.mulf %a, %scale : f32
      linalg.yield %y : f32
    }
    %to = memref.subview %out[%at, 0] [%rows, 64] [1, 1]
      : memref<?x64xf32> to memref<?x64xf32, strided<[64, 1], offset: ?>>
    memref.copy %part, %to
      : memref<?x64xf32, strided<[64, 1]>> to memref<?x64xf32, strided<[64, 1], offset: ?>>
  } {neptune.kernel = "scale_rows"}
  return %out : memref<?x64xf32>
}

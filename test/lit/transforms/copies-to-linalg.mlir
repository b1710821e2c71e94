// RUN: neptune-opt %s --copies-to-linalg | filecheck %s

// CHECK: linalg.copy {{.*}}ins(%arg0 : memref<?xf32, strided<[?], offset: ?>>) outs(%arg1 : memref<?xf32>)
// CHECK-NOT: memref.copy
func.func @f(%x: memref<?xf32, strided<[?], offset: ?>>, %y: memref<?xf32>) {
  memref.copy %x, %y : memref<?xf32, strided<[?], offset: ?>> to memref<?xf32>
  return
}

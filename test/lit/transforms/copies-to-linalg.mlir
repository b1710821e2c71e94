// RUN: neptune-opt %s --copies-to-linalg | filecheck %s

// CHECK-LABEL: func.func @copy
// CHECK-NOT: memref.copy
// CHECK: linalg.copy {{.*}}ins(%arg0 : memref<?xf32, strided<[2]>>) outs(%arg1 : memref<?xf32>)
func.func @copy(%a: memref<?xf32, strided<[2]>>, %b: memref<?xf32>) {
  memref.copy %a, %b : memref<?xf32, strided<[2]>> to memref<?xf32>
  return
}

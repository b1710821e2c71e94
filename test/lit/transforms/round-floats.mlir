// RUN: neptune-opt %s --round-floats=digits=24 | filecheck %s
// RUN: neptune-opt %s --round-floats=digits=24,numbered=true | filecheck %s --check-prefix=TURNED
// RUN: neptune-opt %s --round-floats | filecheck %s --check-prefix=NONE

// What is computed is rounded, sums too; choices are not.
// CHECK: func.func @f(%{{.*}}: f64, %{{.*}}: f64, %{{.*}}: i1, %{{.*}}: memref<f64>) {
// CHECK: %[[SCALED:.*]] = arith.mulf
// CHECK: %[[HIGH:.*]] = arith.mulf %[[SCALED]], %{{.*}} : f64
// CHECK-NEXT: %[[REST:.*]] = arith.subf %[[HIGH]], %[[SCALED]] : f64
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.subf %[[HIGH]], %[[REST]] : f64
// CHECK-NEXT: %[[NUMBER:.*]] = arith.cmpf ord, %[[ROUNDED]], %[[ROUNDED]] : f64
// CHECK-NEXT: %[[KEPT:.*]] = arith.select %[[NUMBER]], %[[ROUNDED]], %[[SCALED]] : f64
// CHECK: %[[SHOWN:.*]] = arith.select %{{.*}}, %[[KEPT]], %{{.*}} : f64
// CHECK: %[[SUM:.*]] = arith.addf %[[SHOWN]], %{{.*}} : f64
// CHECK: arith.mulf %[[SUM]]

// The number of a rounding is the last argument; the mark of the lower neighbour decides. What is
// denormal in f32 is counted in units of its least number.
// TURNED: func.func @f(%{{.*}}: f64, %{{.*}}: f64, %{{.*}}: i1, %{{.*}}: memref<f64>, %[[K:.*]]: i64) {
// TURNED: %[[SCALED:.*]] = arith.mulf
// TURNED: %[[BITS:.*]] = arith.bitcast %[[SCALED]] : f64 to i64
// TURNED: %[[FURTHER:.*]] = arith.andi %[[BITS]]
// TURNED: %[[DOWN:.*]] = arith.xori %[[BITS]], %[[FURTHER]]
// TURNED: %[[SIZE:.*]] = math.absf %[[SCALED]]
// TURNED: %[[SMALL:.*]] = arith.cmpf olt, %[[SIZE]]
// TURNED: %[[UNITS:.*]] = arith.mulf
// TURNED: %[[LOWER:.*]] = math.floor %[[UNITS]]
// TURNED: %[[PART:.*]] = arith.fptoui
// TURNED: %[[REST:.*]] = arith.select %[[SMALL]], %[[PART]], %[[FURTHER]]
// TURNED: %[[PLACE:.*]] = arith.bitcast %[[LOWER]] : f64 to i64
// TURNED: %[[BELOW:.*]] = arith.select %[[SMALL]], %[[PLACE]], %[[DOWN]]
// TURNED: %[[OF:.*]] = arith.muli %[[K]]
// TURNED: arith.xori %[[BELOW]], %[[OF]]
// TURNED: %[[UP:.*]] = arith.cmpi ugt, %[[REST]]
// TURNED: %[[NORMAL:.*]] = arith.bitcast %{{.*}} : i64 to f64
// TURNED: %[[ROUNDED:.*]] = arith.select %[[SMALL]], %{{.*}}, %[[NORMAL]]
// TURNED: arith.select %{{.*}}, %[[ROUNDED]], %{{.*}} : f64

// NONE-LABEL: func.func @f
// NONE-NEXT: arith.mulf
// NONE-NEXT: arith.select
// NONE-NEXT: memref.load
// NONE-NEXT: arith.addf
func.func @f(%x: f64, %s: f64, %c: i1, %m: memref<f64>) {
  %scaled = arith.mulf %x, %s : f64
  %shown = arith.select %c, %scaled, %s : f64
  %total = memref.load %m[] : memref<f64>
  %sum = arith.addf %shown, %total : f64
  memref.store %sum, %m[] : memref<f64>
  return
}

// Single-precision elementary functions become arithmetic; no call to a math library is left.
// RUN: neptune-opt %s --expand-math=fma=true,scalef=false | filecheck %s

// CHECK-LABEL: func.func @f
// CHECK-NOT: math.exp
// CHECK-COUNT-7: math.fma
// CHECK-LABEL: func.func @wide
// CHECK: math.exp %arg0 : f64
func.func @f(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}
func.func @wide(%x: f64) -> f64 {
  %y = math.exp %x : f64
  return %y : f64
}

// RUN: neptune-opt %s --expand-math=fma=true,scalef=true | filecheck %s
// RUN: neptune-opt %s --expand-math=fma=false,scalef=false | filecheck %s --check-prefix=PLAIN

// What underflows to 0 is not computed, or multiplied by 0, and what is denormal is made of an
// integer: it takes long on Intel's cores.
// CHECK-LABEL: func.func @vectors
// CHECK: arith.cmpf ugt
// CHECK-COUNT-6: math.fma {{.*}} : vector<16xf32>
// CHECK: llvm.x86.avx512.mask.scalef.ps.512
// CHECK: scf.if
// CHECK: llvm.x86.avx512.mask.scalef.ps.512
// CHECK: arith.fptosi
// CHECK-NOT: math.exp
// PLAIN-LABEL: func.func @vectors
// PLAIN: dense<-1.760000e+02>
// PLAIN-NOT: math.
// PLAIN: arith.shrsi
// PLAIN-NOT: math.
// PLAIN: return
func.func @vectors(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// Eight lanes whose powers are all normal: n is added to their exponents. Else all is computed as
// above.
// PLAIN-LABEL: func.func @eight
// PLAIN-NOT: arith.shrsi
// PLAIN: %[[IN:.*]] = arith.cmpi ule
// PLAIN: arith.addi
// PLAIN: %[[LANES:.*]] = llvm.bitcast %[[IN]] : vector<8xi1> to i8
// PLAIN: %[[RARE:.*]] = arith.cmpi ne, %[[LANES]], %c-1_i8 : i8
// PLAIN: scf.if %[[RARE]]
// PLAIN: dense<-1.760000e+02>
// PLAIN: arith.shrsi
// PLAIN: } else {
// PLAIN-NEXT: scf.yield
func.func @eight(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp %x : vector<8xf32>
  return %y : vector<8xf32>
}

// Narrow floats go through f32; f64 is left to the C library.
// CHECK-LABEL: func.func @others
// CHECK: arith.extf {{.*}} : f16 to f32
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK: math.exp {{.*}} : f64
func.func @others(%h: f16, %d: f64) -> (f16, f64) {
  %a = math.tanh %h : f16
  %b = math.exp %d : f64
  return %a, %b : f16, f64
}

// A NaN in either operand comes through.
// CHECK-LABEL: func.func @maximum
// CHECK: arith.cmpf ogt
// CHECK: arith.cmpf uno
// CHECK-NOT: arith.maximumf
func.func @maximum(%a: f32, %b: f32) -> f32 {
  %m = arith.maximumf %a, %b : f32
  return %m : f32
}

// From f64 to 16 bits by an f32 whose last bit is odd where it is not exact: one rounding.
// CHECK-LABEL: func.func @narrowed
// CHECK: %[[NEAR:.*]] = arith.truncf %arg0 : vector<8xf64> to vector<8xf32>
// CHECK: arith.bitcast %[[NEAR]]
// CHECK: %[[ODD:.*]] = arith.bitcast %{{.*}} : vector<8xi32> to vector<8xf32>
// CHECK: arith.truncf %[[ODD]] : vector<8xf32> to vector<8xbf16>
// CHECK: arith.truncf %arg1 : f64 to f32
// CHECK-NOT: arith.bitcast
func.func @narrowed(%x: vector<8xf64>, %y: f64) -> (vector<8xbf16>, f32) {
  %a = arith.truncf %x : vector<8xf64> to vector<8xbf16>
  %b = arith.truncf %y : f64 to f32
  return %a, %b : vector<8xbf16>, f32
}

// What is a few plain operations on any type becomes these, whatever the type.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: math.
// CHECK: arith.cmpf uno, %{{.*}}, %{{.*}} : f64
// CHECK-NOT: math.
// CHECK: scf.for
// CHECK: arith.muli {{.*}} : vector<4xi16>
// CHECK-NOT: math.
// CHECK: return
func.func @plain(%d: f64, %a: vector<4xi16>, %b: vector<4xi16>) -> (i1, vector<4xi16>) {
  %n = math.isnan %d : f64
  %p = math.ipowi %a, %b : vector<4xi16>
  return %n, %p : i1, vector<4xi16>
}

// By 0 a quotient is -1 and a rest x, and the least number by -1 is itself: without that a process
// ends on x86. A known divisor is left alone where it is neither, and so are positions.
// CHECK-LABEL: func.func @quotients
// CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[BY:.*]], %{{.*}} : vector<4xi32>
// CHECK: %[[UNDEFINED:.*]] = arith.ori %[[ZERO]], %{{.*}} : vector<4xi1>
// CHECK: %[[SAFE:.*]] = arith.select %[[UNDEFINED]], %{{.*}}, %[[BY]]
// CHECK: %[[QUOTIENT:.*]] = arith.divsi %{{.*}}, %[[SAFE]]
// CHECK: arith.select %[[ZERO]], %{{.*}}, %[[QUOTIENT]]
// CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[BY:.*]], %{{.*}} : i8
// CHECK: %[[SAFE:.*]] = arith.select %[[ZERO]], %{{.*}}, %[[BY]]
// CHECK: %[[REST:.*]] = arith.remui %[[X:.*]], %[[SAFE]]
// CHECK: arith.select %[[ZERO]], %[[X]], %[[REST]]
// CHECK-NOT: arith.select
// CHECK: return
func.func @quotients(%x: vector<4xi32>, %y: vector<4xi32>, %a: i8, %b: i8, %i: index, %j: index)
    -> (vector<4xi32>, i8, vector<4xi32>, index) {
  %seven = arith.constant dense<7> : vector<4xi32>
  %0 = arith.divsi %x, %y : vector<4xi32>
  %1 = arith.remui %a, %b : i8
  %2 = arith.divsi %x, %seven : vector<4xi32>
  %3 = arith.divsi %i, %j : index
  return %0, %1, %2, %3 : vector<4xi32>, i8, vector<4xi32>, index
}

// CHECK-LABEL: func.func @known_quotients
// CHECK: %[[SAFE:.*]] = arith.select
// CHECK: arith.divsi %{{.*}}, %[[SAFE]] : vector<4xi32>
// CHECK: arith.select
// CHECK: %[[SAFE:.*]] = arith.select {{.*}} : i8
// CHECK: arith.remsi %{{.*}}, %[[SAFE]] : i8
// CHECK: arith.select
func.func @known_quotients(%x: vector<4xi32>, %a: i8) -> (vector<4xi32>, i8) {
  %some = arith.constant dense<[1, 2, 0, 4]> : vector<4xi32>
  %minus = arith.constant -1 : i8
  %0 = arith.divsi %x, %some : vector<4xi32>
  %1 = arith.remsi %a, %minus : i8
  return %0, %1 : vector<4xi32>, i8
}

func.func @f(%x: memref<8xf32>, %c: i1) -> memref<8xf32> {
  %one = arith.constant 1.0 : f32
  %c3 = arith.constant 3 : index
  %v = scf.if %c -> (f32) {
    %read = memref.load %x[%c3] : memref<8xf32>
    scf.yield %read : f32
  } else {
    scf.yield %one : f32
  }
  %out = memref.alloc() : memref<8xf32>
  scf.forall (%i) in (8) {
    memref.store %v, %out[%i] : memref<8xf32>
  }
  return %out : memref<8xf32>
}

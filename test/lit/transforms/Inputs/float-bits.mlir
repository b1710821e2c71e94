func.func @f(%x: f32) -> i32 {
  %b = arith.bitcast %x : f32 to i32
  return %b : i32
}

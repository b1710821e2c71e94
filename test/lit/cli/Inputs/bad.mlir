// The value below is defined nowhere.
func.func @bad() -> i32 {
  return %nobody : i32
}

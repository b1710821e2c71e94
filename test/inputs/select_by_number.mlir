// One of two tensors, by a number that the host knows, is summed by rows; `scf.if` gives the same.
// kernels: 1
func.func @select(%x: tensor<?x13xf32>, %y: tensor<?x13xf32>, %z: tensor<?x13xf32>, %n: index, %c: i1) -> tensor<?xf32> {
  %c5 = arith.constant 5 : index
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %less = arith.cmpi slt, %n, %c5 : index
  %r = arith.select %less, %x, %y : tensor<?x13xf32>
  %q = scf.if %c -> (tensor<?x13xf32>) {
    scf.yield %r : tensor<?x13xf32>
  } else {
    scf.yield %z : tensor<?x13xf32>
  }
  %m = tensor.dim %x, %c0 : tensor<?x13xf32>
  %e = tensor.empty(%m) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.reduce { arith.addf } ins(%q : tensor<?x13xf32>) outs(%f : tensor<?xf32>) dimensions = [1]
  return %s : tensor<?xf32>
}

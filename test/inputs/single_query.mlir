// One query, no batch: matvec for the scores, vecmat for the output, and the log-sum-exp too.
// kernels: 2 (one row: the keys are cut in chunks, and these are joined)
func.func @single(%q: tensor<24xf32>, %k: tensor<?x24xf32>, %v: tensor<?x24xf32>) -> (tensor<24xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %k, %c0 : tensor<?x24xf32>
  %se = tensor.empty(%n) : tensor<?xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.matvec ins(%k, %q : tensor<?x24xf32>, tensor<24xf32>) outs(%sf : tensor<?xf32>) -> tensor<?xf32>
  %ue = tensor.empty() : tensor<f32>
  %mf = linalg.fill ins(%ninf : f32) outs(%ue : tensor<f32>) -> tensor<f32>
  %m = linalg.reduce { arith.maximumf } ins(%s : tensor<?xf32>) outs(%mf : tensor<f32>) dimensions = [0]
  %e = linalg.generic {indexing_maps = [affine_map<(j) -> (j)>, affine_map<(j) -> ()>, affine_map<(j) -> (j)>], iterator_types = ["parallel"]}
      ins(%s, %m : tensor<?xf32>, tensor<f32>) outs(%se : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %lf = linalg.fill ins(%zero : f32) outs(%ue : tensor<f32>) -> tensor<f32>
  %l = linalg.reduce { arith.addf } ins(%e : tensor<?xf32>) outs(%lf : tensor<f32>) dimensions = [0]
  %oe = tensor.empty() : tensor<24xf32>
  %of = linalg.fill ins(%zero : f32) outs(%oe : tensor<24xf32>) -> tensor<24xf32>
  %o = linalg.vecmat ins(%e, %v : tensor<?xf32>, tensor<?x24xf32>) outs(%of : tensor<24xf32>) -> tensor<24xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]}
      ins(%o, %l : tensor<24xf32>, tensor<f32>) outs(%oe : tensor<24xf32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %x = arith.divf %a, %b : f32
    linalg.yield %x : f32
  } -> tensor<24xf32>
  %lse = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%m, %l : tensor<f32>, tensor<f32>) outs(%ue : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %u: f32):
    %g = math.log %b : f32
    %x = arith.addf %a, %g : f32
    linalg.yield %x : f32
  } -> tensor<f32>
  return %r, %lse : tensor<24xf32>, tensor<f32>
}

// The second kernel reads what the first one wrote: it waits, and only then lets the next one start. The third needs
// nothing of the second, and what it reads of the first is there: it waits at its end, for those who wait for it. The last
// one reads what the third wrote.
// RUN: neptune-opt %s --assign-layouts=target=sm_90a --distribute-tiles 2>/dev/null | filecheck %s
// RUN: neptune-opt %s --assign-layouts=target=sm_80 --distribute-tiles 2>/dev/null | filecheck %s --check-prefix=OLD

// CHECK: gpu.func
// CHECK-NOT: griddepcontrol.wait
// CHECK: griddepcontrol.launch_dependents
// CHECK-NOT: griddepcontrol
// CHECK: gpu.func
// CHECK: griddepcontrol.wait
// CHECK-NEXT: griddepcontrol.launch_dependents
// CHECK-NOT: griddepcontrol
// CHECK: gpu.func
// CHECK: griddepcontrol.launch_dependents
// CHECK-NEXT: fence.acq_rel.gpu
// CHECK: llvm.load
// CHECK: griddepcontrol.wait
// CHECK-NEXT: gpu.return
// CHECK: gpu.func
// CHECK: griddepcontrol.wait
// CHECK-NOT: griddepcontrol
// OLD-NOT: griddepcontrol

#id = affine_map<(i) -> (i)>
#row = affine_map<(b) -> (b * 128)>

func.func @chain(%x: tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) {
  %e = tensor.empty() : tensor<1024xf32>
  %first = scf.forall (%b) in (8) shared_outs(%o = %e) -> (tensor<1024xf32>) {
    %row = affine.apply #row(%b)
    %t = tensor.extract_slice %x[%row] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %i = tensor.empty() : tensor<128xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%t : tensor<128xf32>) outs(%i : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %v = arith.addf %in, %in : f32
      linalg.yield %v : f32
    } -> tensor<128xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%row] [128] [1] : tensor<128xf32> into tensor<1024xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  %second = scf.forall (%b) in (8) shared_outs(%o = %e) -> (tensor<1024xf32>) {
    %row = affine.apply #row(%b)
    %t = tensor.extract_slice %first[%row] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %i = tensor.empty() : tensor<128xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%t : tensor<128xf32>) outs(%i : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %v = arith.mulf %in, %in : f32
      linalg.yield %v : f32
    } -> tensor<128xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%row] [128] [1] : tensor<128xf32> into tensor<1024xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  %third = scf.forall (%b) in (8) shared_outs(%o = %e) -> (tensor<1024xf32>) {
    %row = affine.apply #row(%b)
    %t = tensor.extract_slice %first[%row] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %i = tensor.empty() : tensor<128xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%t : tensor<128xf32>) outs(%i : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %v = arith.negf %in : f32
      linalg.yield %v : f32
    } -> tensor<128xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%row] [128] [1] : tensor<128xf32> into tensor<1024xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  %last = scf.forall (%b) in (8) shared_outs(%o = %e) -> (tensor<1024xf32>) {
    %row = affine.apply #row(%b)
    %t = tensor.extract_slice %third[%row] [128] [1] : tensor<1024xf32> to tensor<128xf32>
    %i = tensor.empty() : tensor<128xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%t : tensor<128xf32>) outs(%i : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %v = arith.addf %in, %in : f32
      linalg.yield %v : f32
    } -> tensor<128xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %r into %o[%row] [128] [1] : tensor<128xf32> into tensor<1024xf32>
    }
  } {mapping = [#gpu.block<linear_dim_0>]}
  return %second, %third, %last : tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>
}

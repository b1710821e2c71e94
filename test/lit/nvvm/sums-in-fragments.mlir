// What programs add up lies in memory as registers hold it where an elementwise kernel alone reads it, and a
// tile is never beyond its end. A kernel that sums it, or a caller, finds it by rows.
// RUN: neptune-opt %s --sums-in-fragments | filecheck %s

// CHECK-LABEL: func.func @scaled
// CHECK: neptune.consumers = 2 : i64, neptune.in_fragments = array<i64: 0>
// CHECK-LABEL: func.func @summed
// CHECK-NOT: neptune.in_fragments
// CHECK-LABEL: func.func @returned
// CHECK-NOT: neptune.in_fragments
// CHECK-LABEL: func.func @anywhere
// CHECK-NOT: neptune.in_fragments

#same = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#mk = affine_map<(i, j, k) -> (i, k)>
#kn = affine_map<(i, j, k) -> (k, j)>
#mn = affine_map<(i, j, k) -> (i, j)>

func.func @scaled(%p: tensor<128x128xf16>, %k: tensor<128x64xf16>) -> tensor<512x64xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %zeros = scf.forall (%i) in (4) shared_outs(%dst = %e) -> (tensor<512x64xf32>) {
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %z into %dst[%at, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "zeros"}
  %sum = scf.forall (%i) in (4) shared_outs(%dst = %zeros) -> (tensor<512x64xf32>) {
    %strip = tensor.extract_slice %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> to tensor<512x64xf32>
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %x = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %k : tensor<128x128xf16>, tensor<128x64xf16>) outs(%z : tensor<128x64xf32>)
        attrs = {neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"} {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %af = arith.extf %a : f16 to f32
      %bf = arith.extf %b : f16 to f32
      %m = arith.mulf %af, %bf : f32
      %t = arith.addf %c, %m : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32>
    %more = "neptune.add_slice"(%x, %strip, %at, %c0) {neptune.whole} : (tensor<128x64xf32>, tensor<512x64xf32>, index, index) -> tensor<512x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %more into %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "sums", neptune.consumers = 2 : i64, neptune.target = "sm_90a"}
  %h = tensor.empty() : tensor<512x64xf16>
  %out = scf.forall (%i) in (32) shared_outs(%dst = %h) -> (tensor<512x64xf16>) {
    %at = affine.apply affine_map<(i) -> (i * 16)>(%i)
    %x = tensor.extract_slice %sum[%at, 0] [16, 64] [1, 1] : tensor<512x64xf32> to tensor<16x64xf32>
    %o = tensor.empty() : tensor<16x64xf16>
    %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<16x64xf32>) outs(%o : tensor<16x64xf16>) {
    ^bb0(%a: f32, %b: f16):
      %t = arith.truncf %a : f32 to f16
      linalg.yield %t : f16
    } -> tensor<16x64xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %dst[%at, 0] [16, 64] [1, 1] : tensor<16x64xf16> into tensor<512x64xf16>
    }
  } {neptune.kernel = "scale"}
  return %out : tensor<512x64xf16>
}

func.func @summed(%p: tensor<128x128xf16>, %k: tensor<128x64xf16>) -> tensor<512xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %zeros = scf.forall (%i) in (4) shared_outs(%dst = %e) -> (tensor<512x64xf32>) {
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %z into %dst[%at, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "zeros"}
  %sum = scf.forall (%i) in (4) shared_outs(%dst = %zeros) -> (tensor<512x64xf32>) {
    %strip = tensor.extract_slice %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> to tensor<512x64xf32>
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %x = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %k : tensor<128x128xf16>, tensor<128x64xf16>) outs(%z : tensor<128x64xf32>)
        attrs = {neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"} {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %af = arith.extf %a : f16 to f32
      %bf = arith.extf %b : f16 to f32
      %m = arith.mulf %af, %bf : f32
      %t = arith.addf %c, %m : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32>
    %more = "neptune.add_slice"(%x, %strip, %at, %c0) {neptune.whole} : (tensor<128x64xf32>, tensor<512x64xf32>, index, index) -> tensor<512x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %more into %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "sums", neptune.consumers = 2 : i64, neptune.target = "sm_90a"}
  %h = tensor.empty() : tensor<512xf32>
  %out = scf.forall (%i) in (32) shared_outs(%dst = %h) -> (tensor<512xf32>) {
    %at = affine.apply affine_map<(i) -> (i * 16)>(%i)
    %x = tensor.extract_slice %sum[%at, 0] [16, 64] [1, 1] : tensor<512x64xf32> to tensor<16x64xf32>
    %o = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<16xf32>) -> tensor<16xf32>
    %y = linalg.generic {indexing_maps = [#same, #row], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<16x64xf32>) outs(%z : tensor<16xf32>) {
    ^bb0(%a: f32, %b: f32):
      %t = arith.addf %a, %b : f32
      linalg.yield %t : f32
    } -> tensor<16xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %dst[%at] [16] [1] : tensor<16xf32> into tensor<512xf32>
    }
  } {neptune.kernel = "rows"}
  return %out : tensor<512xf32>
}

func.func @returned(%p: tensor<128x128xf16>, %k: tensor<128x64xf16>) -> tensor<512x64xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %zeros = scf.forall (%i) in (4) shared_outs(%dst = %e) -> (tensor<512x64xf32>) {
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %z into %dst[%at, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "zeros"}
  %sum = scf.forall (%i) in (4) shared_outs(%dst = %zeros) -> (tensor<512x64xf32>) {
    %strip = tensor.extract_slice %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> to tensor<512x64xf32>
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %x = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %k : tensor<128x128xf16>, tensor<128x64xf16>) outs(%z : tensor<128x64xf32>)
        attrs = {neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"} {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %af = arith.extf %a : f16 to f32
      %bf = arith.extf %b : f16 to f32
      %m = arith.mulf %af, %bf : f32
      %t = arith.addf %c, %m : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32>
    %more = "neptune.add_slice"(%x, %strip, %at, %c0) {neptune.whole} : (tensor<128x64xf32>, tensor<512x64xf32>, index, index) -> tensor<512x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %more into %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "sums", neptune.consumers = 2 : i64, neptune.target = "sm_90a"}
  return %sum : tensor<512x64xf32>
}

func.func @anywhere(%p: tensor<128x128xf16>, %k: tensor<128x64xf16>) -> tensor<512x64xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %zeros = scf.forall (%i) in (4) shared_outs(%dst = %e) -> (tensor<512x64xf32>) {
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %z into %dst[%at, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "zeros"}
  %sum = scf.forall (%i) in (4) shared_outs(%dst = %zeros) -> (tensor<512x64xf32>) {
    %strip = tensor.extract_slice %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> to tensor<512x64xf32>
    %at = affine.apply affine_map<(i) -> (i * 128)>(%i)
    %o = tensor.empty() : tensor<128x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%o : tensor<128x64xf32>) -> tensor<128x64xf32>
    %x = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %k : tensor<128x128xf16>, tensor<128x64xf16>) outs(%z : tensor<128x64xf32>)
        attrs = {neptune.layout = "reg[1:2*1 0:2*8 1:8*8] lane[1:4*2 0:8*1] warp[0:8*16]"} {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %af = arith.extf %a : f16 to f32
      %bf = arith.extf %b : f16 to f32
      %m = arith.mulf %af, %bf : f32
      %t = arith.addf %c, %m : f32
      linalg.yield %t : f32
    } -> tensor<128x64xf32>
    %more = "neptune.add_slice"(%x, %strip, %at, %c0) : (tensor<128x64xf32>, tensor<512x64xf32>, index, index) -> tensor<512x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %more into %dst[0, 0] [512, 64] [1, 1] : tensor<512x64xf32> into tensor<512x64xf32>
    }
  } {neptune.kernel = "sums", neptune.consumers = 2 : i64, neptune.target = "sm_90a"}
  %h = tensor.empty() : tensor<512x64xf16>
  %out = scf.forall (%i) in (32) shared_outs(%dst = %h) -> (tensor<512x64xf16>) {
    %at = affine.apply affine_map<(i) -> (i * 16)>(%i)
    %x = tensor.extract_slice %sum[%at, 0] [16, 64] [1, 1] : tensor<512x64xf32> to tensor<16x64xf32>
    %o = tensor.empty() : tensor<16x64xf16>
    %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<16x64xf32>) outs(%o : tensor<16x64xf16>) {
    ^bb0(%a: f32, %b: f16):
      %t = arith.truncf %a : f32 to f16
      linalg.yield %t : f16
    } -> tensor<16x64xf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %dst[%at, 0] [16, 64] [1, 1] : tensor<16x64xf16> into tensor<512x64xf16>
    }
  } {neptune.kernel = "scale"}
  return %out : tensor<512x64xf16>
}

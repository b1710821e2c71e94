// A ring between a producer and consumers, as text and back; cse and canonicalize leave it alone.
// RUN: neptune-opt %s --canonicalize --cse | neptune-opt - | filecheck %s

// CHECK: %[[RING:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
// CHECK: %[[OTHER:.*]] = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
// CHECK: "neptune.producer"()
// CHECK: tensor.extract_slice
// CHECK: "neptune.aref_put"(%[[RING]],
// CHECK: "neptune.aref_put"(%[[OTHER]],
// CHECK: %[[TILE:.*]] = "neptune.aref_get"(%[[RING]])
// CHECK: "neptune.aref_release"(%[[TILE]])
// CHECK: "neptune.aref_get"(%[[OTHER]])

func.func @two_rings(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    %other = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
        "neptune.aref_put"(%other, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
      %u = "neptune.aref_get"(%other) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      "neptune.aref_release"(%u) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// What the verifiers of asynchronous references reject (see neptune_mlir/dialects/aref.py).
// RUN: neptune-opt %s --split-input-file --verify-diagnostics

func.func @no_slots(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    // expected-error@below {{needs a ring of 1 slot or more, got 0 : i64}}
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 0 : i64>
  }
  return
}

// -----

func.func @dynamic_tile(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    // expected-error@below {{needs a ring of tiles of static shape, got tensor<?x64xf16>}}
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<?x64xf16>, 4 : i64>
  }
  return
}

// -----

func.func @no_program() {
  // expected-error@below {{stands outside the body of an scf.forall}}
  %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
  return
}

// -----

func.func @never_got(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    // expected-error@below {{is put in 1 places and got in 0}}
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
  }
  return
}

// -----

func.func @two_producers(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    // expected-error@below {{is a second producer of its program}}
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @computes(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        // expected-error@below {{stands in a neptune.producer, which holds loops, loads, puts and index computations}}
        %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @carries(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      // expected-error@below {{carries a value in a neptune.producer; its loops only load}}
      %z = scf.for %j = %c0 to %c1024 step %c128 iter_args(%a = %c0) -> (index) {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
        scf.yield %a : index
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @consumers_value(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    %i = arith.addi %b, %c128 : index
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        // expected-error@below {{needs a value of the consumers, of 'arith.addi'}}
        %t = tensor.extract_slice %k[%i, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @puts_outside(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
      // expected-error@below {{stands outside a neptune.producer}}
      "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
    }
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @puts_other(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<1024x64xf16> to tensor<64x64xf16>
        // expected-error@below {{puts a tensor<64x64xf16> into a ring of tensor<128x64xf16>}}
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<64x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @puts_computed(%k: tensor<1024x64xf16>, %k0: tensor<128x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %y = arith.addf %k0, %k0 : tensor<128x64xf16>
        // expected-error@below {{puts what is no load; it takes a tensor.extract_slice or tensor.pad}}
        "neptune.aref_put"(%ring, %y) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @producer_gets(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        // expected-error@below {{stands in a neptune.producer; the consumers get tiles}}
        %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
  }
  return
}

// -----

func.func @gets_other(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      // expected-error@below {{gets a tensor<64x64xf16> from a ring of tensor<128x64xf16>}}
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<64x64xf16>
      "neptune.aref_release"(%t) : (tensor<64x64xf16>) -> ()
    }
  }
  return
}

// -----

func.func @kept(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      // expected-error@below {{gets a tile that is released 0 times, not once}}
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
    }
  }
  return
}

// -----

func.func @released_inside(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      scf.for %i = %c0 to %c128 step %c128 {
        // expected-error@below {{releases a tile in another block than its neptune.aref_get}}
        "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
      }
    }
  }
  return
}

// -----

func.func @read_later(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>
    "neptune.producer"() ({
      scf.for %j = %c0 to %c1024 step %c128 {
        %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : tensor<1024x64xf16> to tensor<128x64xf16>
        "neptune.aref_put"(%ring, %t) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>, tensor<128x64xf16>) -> ()
      }
    }) : () -> ()
    scf.for %j = %c0 to %c1024 step %c128 {
      %t = "neptune.aref_get"(%ring) : (!neptune.aref<tensor<128x64xf16>, 4 : i64>) -> tensor<128x64xf16>
      // expected-error@below {{releases a tile that 'tensor.extract' reads later}}
      "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
      %x = tensor.extract %t[%c0, %c0] : tensor<128x64xf16>
    }
  }
  return
}

// -----

func.func @releases_other(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    %t = tensor.empty() : tensor<128x64xf16>
    // expected-error@below {{releases what no neptune.aref_get gave}}
    "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
  }
  return
}

// -----

func.func @no_ring(%k: tensor<1024x64xf16>) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  scf.forall (%b) in (2) {
    // expected-error@below {{takes a ring (!neptune.aref), got index}}
    %t = "neptune.aref_get"(%b) : (index) -> tensor<128x64xf16>
    "neptune.aref_release"(%t) : (tensor<128x64xf16>) -> ()
  }
  return
}

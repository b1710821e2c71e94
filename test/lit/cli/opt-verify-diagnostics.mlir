// RUN: neptune-opt %s --split-input-file --verify-diagnostics --canonicalize
// RUN: not neptune-opt %s --split-input-file --verify-diagnostics --cse --allow-unregistered-dialect 2>&1 | filecheck %s
// CHECK-NOT: unexpected error
// CHECK: expected error "unregistered dialect" was not produced

func.func @fine() {
  return
}

// -----

func.func @unknown() {
  // expected-error@below {{unregistered dialect}}
  "foo.bar"() : () -> ()
  return
}

// -----

func.func @late() -> i32 {
  return %nobody : i32 // expected-error-re {{use of {{un[a-z]+}} SSA value name}}
}

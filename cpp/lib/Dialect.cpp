// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect as C++: all of it is made by mlir-tblgen.
#include "neptune/Dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "neptune/Dialect.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "neptune/Types.cpp.inc"

#define GET_OP_CLASSES
#include "neptune/Ops.cpp.inc"

void neptune::NeptuneDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "neptune/Types.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "neptune/Ops.cpp.inc"
      >();
}

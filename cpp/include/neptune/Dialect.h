// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The `neptune` dialect for C++: op classes with accessors, builders and verifiers, made from
// neptune.irdl (docs/dialect.md says what the ops mean, docs/embedding.md what is checked here).
#ifndef NEPTUNE_DIALECT_H
#define NEPTUNE_DIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "neptune/Dialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "neptune/Types.h.inc"

#define GET_OP_CLASSES
#include "neptune/Ops.h.inc"

#endif // NEPTUNE_DIALECT_H

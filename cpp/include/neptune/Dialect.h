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

namespace neptune {
/// The extent of a loop that is known at run time only, in `domain`.
inline constexpr int64_t kDynamic = ::mlir::ShapedType::kDynamic;

/// How many operands or results of mixed types an op has at most.
inline constexpr size_t kMaxValues = 16;

/// The segment attribute of an op that has `count` operands or results of mixed types.
::mlir::DenseI32ArrayAttr segmentSizes(::mlir::MLIRContext *context, size_t count);

/// Checks a segment attribute: `segments` numbers that are 0 or 1, as many 1 as there are values.
::llvm::LogicalResult verifySegments(::mlir::Operation *op, ::mlir::DenseI32ArrayAttr sizes,
                                     size_t segments, size_t values);
} // namespace neptune

#define GET_TYPEDEF_CLASSES
#include "neptune/Types.h.inc"

#define GET_OP_CLASSES
#include "neptune/Ops.h.inc"

#endif // NEPTUNE_DIALECT_H

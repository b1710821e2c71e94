// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect as C++: what mlir-tblgen made, and what segment attributes are.
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

mlir::DenseI32ArrayAttr neptune::segmentSizes(mlir::MLIRContext *context, size_t count) {
  // IRDL spells values of mixed types as so many optional ones (MAX_VALUES of the Python package)
  llvm::SmallVector<int32_t, 16> sizes(kMaxValues, 0);
  assert(count <= sizes.size() && "a fused op carries at most kMaxValues values");
  std::fill_n(sizes.begin(), count, 1);
  return mlir::DenseI32ArrayAttr::get(context, sizes);
}

llvm::LogicalResult neptune::verifySegments(mlir::Operation *op, mlir::DenseI32ArrayAttr sizes,
                                            size_t segments, size_t values) {
  size_t found = 0;
  bool fits = static_cast<size_t>(sizes.size()) == segments;
  for (int32_t size : sizes.asArrayRef()) {
    fits = fits && (size == 0 || size == 1);
    found += size;
  }
  if (fits && found == values)
    return mlir::success();
  return op->emitOpError() << "has " << values << " values, which its segment sizes " << sizes
                           << " do not say; give " << segments << " numbers, 1 for each value, then 0";
}

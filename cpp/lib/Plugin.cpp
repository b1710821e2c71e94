// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-opt --load-dialect-plugin=NeptunePlugin.so: a stock mlir-opt knows the dialect. MLIR's
// symbols are those of the tool that loads this.
#include "neptune/Dialect.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"

extern "C" LLVM_ATTRIBUTE_WEAK ::mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "neptune", NEPTUNE_VERSION, [](mlir::DialectRegistry *registry) {
            registry->insert<neptune::NeptuneDialect>();
          }};
}

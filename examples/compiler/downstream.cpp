// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiler of its own that lets neptune-opt fuse its reductions:
//
//   linalg --neptune-opt--> fused IR --(looked at here)--> neptune-opt --> tile IR
//          --(own pass, upstream's passes)--> LLVM IR --> run
//
// neptune-opt is a process: text goes out and comes back. Fused IR has ops of the `neptune`
// dialect, which the library NeptuneMLIR::Dialect knows; tile IR has upstream's ops only.
#include "neptune/Dialect.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/AllocationOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/BufferDeallocationOpInterfaceImpl.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/SCF/Transforms/Passes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

namespace {

/// Own code: copies between arrays become loops, not calls of a library.
struct CopiesToLoops : PassWrapper<CopiesToLoops, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CopiesToLoops)
  StringRef getArgument() const override { return "copies-to-loops"; }
  StringRef getDescription() const override { return "make loops of copies"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<linalg::LinalgDialect>();
  }
  void runOnOperation() override {
    getOperation().walk([](memref::CopyOp copy) {
      OpBuilder builder(copy);
      linalg::makeMemRefCopyOp(builder, copy.getLoc(), copy.getSource(), copy.getTarget());
      copy.erase();
    });
  }
};

void registerEverything(DialectRegistry &registry) {
  registry.insert<affine::AffineDialect, arith::ArithDialect, bufferization::BufferizationDialect,
                  cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect,
                  linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect,
                  memref::MemRefDialect, scf::SCFDialect, tensor::TensorDialect,
                  neptune::NeptuneDialect>();
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(registry);
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  memref::registerAllocationOpInterfaceExternalModels(registry);
  scf::registerBufferDeallocationOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);

  registerConversionPasses();
  registerTransformsPasses();
  registerLinalgPasses();
  registerSCFPasses();
  bufferization::registerBufferizationPasses();
  bufferization::registerBufferizationPipelines();
  memref::registerMemRefPasses();
  PassRegistration<CopiesToLoops>();
}

/// What neptune-opt makes of a module by a pipeline.
OwningOpRef<ModuleOp> neptuneOpt(StringRef tool, ModuleOp module, StringRef pipeline) {
  SmallString<128> in, out;
  if (llvm::sys::fs::createTemporaryFile("downstream", "mlir", in) ||
      llvm::sys::fs::createTemporaryFile("downstream", "out.mlir", out))
    return nullptr;
  std::error_code error;
  {
    llvm::raw_fd_ostream file(in, error);
    module.print(file);
  }
  SmallVector<StringRef> command = {tool, in, "-p", pipeline, "-o", out};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(tool, command, std::nullopt, {}, 0, 0, &message);
  OwningOpRef<ModuleOp> made;
  if (code == 0)
    made = parseSourceFile<ModuleOp>(out, module.getContext());
  else
    llvm::errs() << "neptune-opt failed (" << code << ") " << message << "\n";
  llvm::sys::fs::remove(in);
  llvm::sys::fs::remove(out);
  return made;
}

/// Own code: what was fused, read from the fused IR.
void report(ModuleOp module) {
  module.walk([](neptune::StreamOp stream) {
    auto axis = cast<StringAttr>(stream.getAxisNames()[stream.getAxis().getInt()]);
    unsigned corrections = 0;
    stream.getBody().walk([&](neptune::CorrectOp) { ++corrections; });
    auto values = stream.getBody().front().getNumArguments();
    llvm::outs() << "fused: one pass over '" << axis.getValue() << "' carries " << values
                 << " running values, " << corrections << " corrected\n";
  });
}

LogicalResult run(ModuleOp module, StringRef pipeline) {
  PassManager passes(module.getContext());
  return failed(parsePassPipeline(pipeline, passes)) ? failure() : passes.run(module);
}

const char *const fusePipeline = "builtin.module(canonicalize,cse,raise-linalg,inline-maps,rolling-update,"
                   "prune-masks)";
const char *const tilePipeline = "builtin.module(tile{rows=32 stream=64},lower-correct,lower-to-tiles,"
                   "canonicalize,cse)";
// one pipeline for every MLIR: the options of bufferization are those that tile IR needs
const char *const bufferizePipeline =
    "one-shot-bufferize{bufferize-function-boundaries allow-return-allocs-from-loops "
    "function-boundary-type-conversion=identity-layout-map},buffer-deallocation-pipeline,"
    "convert-bufferization-to-memref,copies-to-loops";
const char *const lowerPipeline =
    "scf-forall-to-for,convert-linalg-to-loops,expand-strided-metadata,lower-affine,"
    "convert-scf-to-cf,convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,"
    "convert-arith-to-llvm,convert-func-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts";

using Matrix = StridedMemRefType<float, 2>;

Matrix matrix(std::vector<float> &data, int64_t rows, int64_t columns) {
  data.resize(rows * columns);
  for (size_t k = 0; k < data.size(); ++k)
    data[k] = static_cast<float>((k * 2654435761u % 4001) / 1000.0 - 2.0);
  return {data.data(), data.data(), 0, {rows, columns}, {columns, 1}};
}

/// The largest error of a result, against a computation in f64.
double error(Matrix &x, Matrix &v, Matrix &result) {
  double worst = 0;
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < x.sizes[1]; ++j)
      largest = std::max(largest, double(x[i][j]));
    for (int64_t j = 0; j < x.sizes[1]; ++j)
      sum += std::exp(x[i][j] - largest);
    for (int64_t d = 0; d < v.sizes[1]; ++d) {
      double exact = 0;
      for (int64_t j = 0; j < x.sizes[1]; ++j)
        exact += std::exp(x[i][j] - largest) / sum * v[j][d];
      worst = std::max(worst, std::abs(exact - result[i][d]));
    }
  }
  return worst;
}

int execute(ModuleOp module) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  ExecutionEngineOptions options;
  auto optimize = makeOptimizingTransformer(2, 0, nullptr);
  options.transformer = optimize;
  auto engine = ExecutionEngine::create(module, options);
  if (!engine) {
    llvm::errs() << llvm::toString(engine.takeError()) << "\n";
    return 1;
  }
  std::vector<float> first, second;
  Matrix x = matrix(first, 100, 300), v = matrix(second, 300, 40), result{};
  Matrix *px = &x, *pv = &v, *pr = &result;
  void *arguments[] = {&pr, &px, &pv};
  if (auto failed = (*engine)->invokePacked("_mlir_ciface_weighted", arguments)) {
    llvm::errs() << llvm::toString(std::move(failed)) << "\n";
    return 1;
  }
  double found = error(x, v, result);
  llvm::outs() << "ran: error against f64 " << (found < 1e-5 ? "below" : "above") << " 1e-5\n";
  free(result.basePtr);
  return found < 1e-5 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    llvm::errs() << "usage: downstream INPUT.mlir [NEPTUNE-OPT]\n";
    return 2;
  }
  auto tool = llvm::sys::findProgramByName(argc > 2 ? argv[2] : "neptune-opt");
  if (!tool) {
    llvm::errs() << "there is no neptune-opt on PATH; pip install neptune-mlir\n";
    return 2;
  }
  DialectRegistry registry;
  registerEverything(registry);
  MLIRContext context(registry);

  auto program = parseSourceFile<ModuleOp>(argv[1], &context);
  auto fused = program ? neptuneOpt(*tool, *program, fusePipeline) : nullptr;
  if (!fused)
    return 1;
  report(*fused);
  auto tiles = neptuneOpt(*tool, *fused, tilePipeline);
  if (!tiles)
    return 1;
  unsigned loops = 0, strange = 0;
  tiles->walk([&](Operation *op) {
    loops += isa<scf::ForallOp>(op);
    strange += isa_and_nonnull<neptune::NeptuneDialect>(op->getDialect());
  });
  llvm::outs() << "tiled: " << loops << " scf.forall, " << strange << " ops of another dialect\n";
  if (failed(run(*tiles, bufferizePipeline)) || failed(run(*tiles, lowerPipeline)))
    return 1;
  return execute(*tiles);
}

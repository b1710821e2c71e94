# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX models as nodes that torch-mlir lowers rightly."""

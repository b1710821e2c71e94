# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests share: programs to compile, simulators of chips, references, and the tools' server."""

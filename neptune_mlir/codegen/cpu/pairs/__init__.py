# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of pairs of bf16 numbers: AMX and `vdpbf16ps`."""

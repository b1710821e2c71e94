# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's instructions, specialised warps of sm_90a, PTX and its assembler."""

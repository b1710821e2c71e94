# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD's instructions, its assembler and the notes of its images."""

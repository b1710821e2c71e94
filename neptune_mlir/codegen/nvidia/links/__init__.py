# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels tell and give other devices while they run."""

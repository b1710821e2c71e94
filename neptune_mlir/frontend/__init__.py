# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways in: programs in index notation (`notation`), and PyTorch modules (`from_torch`)."""

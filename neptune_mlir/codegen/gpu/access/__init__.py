# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the threads of a block reach memory: their positions, addresses and accesses."""

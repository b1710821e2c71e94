# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line: `neptune-opt` (opt.py) and `neptune` (main.py)."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which axes nests have: joined, split, in chunks."""

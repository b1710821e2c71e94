# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions that need less than their bodies say."""

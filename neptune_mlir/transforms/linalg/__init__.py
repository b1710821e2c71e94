# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linalg on tensors to nests, and back."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Declarative patterns over ops: how front ends spell what the compiler knows by another name."""

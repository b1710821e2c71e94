# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests to fused nests: inlining, deferral, rolling update, privatization, their proofs."""

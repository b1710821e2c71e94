# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to Triton IR, and Triton as a code generator."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR on any GPU: layouts, kernels for what no nest models, references kept."""

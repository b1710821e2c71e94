# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines: lists of passes as data, one file per target, and the runner for them."""

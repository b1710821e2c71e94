# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that run together (`form-clusters`): a program each, or all of them one."""

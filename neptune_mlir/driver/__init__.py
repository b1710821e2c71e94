# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a program to a kernel: reading inputs, the cache, running pipelines, what people see."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The drivers of GPUs: memory, streams, graphs and launches, whoever made the device."""

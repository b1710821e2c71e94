# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulators of chips and of their drivers, and what runs kernels on them."""

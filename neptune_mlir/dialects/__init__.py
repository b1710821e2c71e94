# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of this project and their verifiers, and what is read of a module made of them."""

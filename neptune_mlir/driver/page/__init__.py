# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune explain --html`: a page about a program, with figures."""

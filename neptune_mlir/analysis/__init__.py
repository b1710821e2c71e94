# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What passes ask about a program before they change it."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of PTX, changed before it is assembled."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of rows ask for before they need it, and where they keep it."""

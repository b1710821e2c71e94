# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a fused form is as accurate as what was written: inputs that hurt, and a bound."""

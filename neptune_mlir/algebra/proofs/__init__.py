# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Why a fused form is right: obligations, and what discharges them."""

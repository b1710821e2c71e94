# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tile sizes a fused program gets: schedules, their rules, and the tile sizes of a chip."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a schedule asks of tile sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Wishes:
    """What a schedule asks of the rule: the options of the pass, 0 for nothing."""

    rows: int = 0
    stream: int = 0
    columns: int = 0
    held: int = 0
    shared: int = 0
    least: int = 0
    warp_groups: int = 0
    length: int = 0
    few: int = 0
    products: int = 0
    aligned: int = 0
    chunks: int = 0
    product_rows: int = 0
    product_stream: int = 0
    product_columns: int = 0
    most: int = 0
    words: int = 0
    beside_products: bool = False  # another kernel of the program has products

    def of(self, products: bool) -> tuple[Wishes, int, int]:
        """What is asked of a kernel, with products or without; of these rows and streamed
        elements."""
        if not products:
            return self, self.rows, self.stream
        rows = self.rows or self.product_rows or self.products
        stream = self.stream or self.product_stream or self.products
        return replace(self, rows=rows, stream=stream), rows, stream

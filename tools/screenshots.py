#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Take the screenshots of docs/images with Chromium: pages of `neptune explain --html`, at the
width of a desk and of a phone. Pillow makes the files small."""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PAGES = {
    "attention": ["examples/attention.mlir"],
    "layer_norm": ["examples/layer_norm.mlir"],
    "windowed_decode": ["examples/windowed_decode.mlir", "--target", "sm_90a", "--size", "16384"],
}
SIZES = {1400: 2700, 400: 3000}  # widths, and how much of the page is shown
COLOURS = 160
LEAST = 500  # Chromium has no window that is less wide: such a page is shown in a frame


def framed(text: str, width: int, height: int) -> str:
    """A page that shows another one as a screen of this size would."""
    return (f"<body style='margin:0'><iframe srcdoc='{html.escape(text)}' scrolling=no "
            f"style='border:0;width:{width}px;height:{height}px'></iframe>")  # fmt: skip


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("chromium is not installed", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in PAGES.items():
            page = Path(folder) / f"{name}.html"
            command = [sys.executable, "-m", "neptune_mlir.cli.main", "explain", *arguments]
            subprocess.run([*command, "--html", str(page)], check=True, cwd=ROOT)
            for width, height in SIZES.items():
                shot, frame = Path(folder) / "shot.png", Path(folder) / "frame.html"
                frame.write_text(framed(page.read_text(), width, height))
                window = f"{max(width, LEAST)},{height}"
                subprocess.run(
                    [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                     f"--window-size={window}", f"--screenshot={shot}", f"file://{frame}"],
                    check=True, capture_output=True,
                )  # fmt: skip
                small = Image.open(shot).convert("RGB").crop((0, 0, width, height)).quantize(
                    COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
                )
                small.save(IMAGES / f"explain_{name}_{width}.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

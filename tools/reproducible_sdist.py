#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write source distributions again so that they depend on their files alone.

    SOURCE_DATE_EPOCH=... python tools/reproducible_sdist.py dist/*.tar.gz

Members are sorted, belong to nobody, and have the time SOURCE_DATE_EPOCH (setuptools does this for
wheels, not for tar files).
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def rewrite(path: Path, epoch: int) -> None:
    """Replace an archive by one with the same files."""
    with tarfile.open(path) as old:
        members = sorted(old.getmembers(), key=lambda m: m.name)
        contents = {m.name: old.extractfile(m).read() for m in members if m.isfile()}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in members:
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.mtime = member.type, epoch
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            entry.size = len(contents.get(member.name, b""))
            new.addfile(entry, io.BytesIO(contents.get(member.name, b"")))
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(raw.getvalue())


def main(paths: list[str]) -> int:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdigit() or not paths:
        print("set SOURCE_DATE_EPOCH, and name archives", file=sys.stderr)
        return 2
    for path in paths:
        rewrite(Path(path), int(epoch))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

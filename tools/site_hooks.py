# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `mkdocs` needs to know of this repository: files outside of docs/ that pages link to are
part of the site, under `project/`."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = "project"
_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add what pages link to, and what those link to in turn."""
    pending = [(Path(f.abs_src_path), "docs/" + f.src_uri) for f in files.documentation_pages()]
    pending += [(ROOT / name, name) for name in ("CHANGELOG.md", "CONTRIBUTING.md")]
    seen = set()
    while pending:
        path, name = pending.pop()
        if not name.startswith("docs/") and name not in seen:
            seen.add(name)
            files.append(_file(path, name, config))
        if path.suffix != ".md":
            continue
        for target in _LINK.findall(path.read_text()):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), target[1]))
            found = _shown(other)
            if found is not None and found[1] not in seen and not other.startswith("docs/"):
                pending.append(found)
    return files


def _file(path: Path, name: str, config: Any) -> Any:
    made = File.generated(config, f"{OUTSIDE}/{name}", abs_src_path=str(path))
    return made


def _shown(name: str) -> tuple[Path, str] | None:
    """The file that a link to a file or folder of the repository leads to."""
    path = ROOT / name
    if path.is_dir():
        inside = next((f for f in ("README.md",) if (path / f).exists()), None)
        return (path / inside, f"{name}/{inside}") if inside else None
    return (path, name) if path.is_file() else None


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/, and those of files outside, lead to the copies in the site."""
    source = page.file.src_uri
    outside = source.startswith(f"{OUTSIDE}/")
    own = source.removeprefix(f"{OUTSIDE}/") if outside else f"docs/{source}"

    def moved(found: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(posixpath.dirname(own), found[2]))
        if not outside and other.startswith("docs/"):
            return found[0]
        shown = _shown(other)
        if shown is None:
            return found[0] if not (ROOT / other).is_dir() else f"]({_up(source)}#)"
        name = shown[1]
        place = name.removeprefix("docs/") if name.startswith("docs/") else f"{OUTSIDE}/{name}"
        path = posixpath.relpath(place, posixpath.dirname(source) or ".")
        return f"{found[1]}{path}{found[3] or ''}{found[4]}"

    return _LINK.sub(moved, markdown)


def _up(source: str) -> str:
    """The start page, as seen from a page."""
    return posixpath.relpath("README.md", posixpath.dirname(source) or ".")

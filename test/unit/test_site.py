# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages of docs/: links lead somewhere, pictures are small, and the site builds."""

import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / f"{n}.md" for n in
         ("README", "CONTRIBUTING", "CHANGELOG"))]  # fmt: skip
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)")


def anchors(path):
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    found = []
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", heading)).lower()
        found.append(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain).strip()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {target} has no #{anchor}"


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text()
    named = set(re.findall(r": (?:project/)?([\w./-]+\.md)$", config, re.M))
    assert {p.name for p in PAGES} <= named
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {n for n in pages if f"]({n})" not in index} == set()


def test_pictures_are_small():
    shots = list((ROOT / "docs" / "images").glob("*.png"))
    assert {p.name.rsplit("_", 1)[1] for p in shots} == {"1400.png", "400.png"}
    assert all(p.stat().st_size < 200_000 for p in shots)


@pytest.mark.nightly
def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # pages load nothing from other hosts
    tag = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="https?:[^"]+"')
    for page in (tmp_path / "site").rglob("*.html"):
        assert not tag.search(page.read_text()), page

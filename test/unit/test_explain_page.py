# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune explain --html`: the page is whole, its links lead somewhere, it needs no network."""

import html
import html.parser
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from neptune_mlir import ops
from neptune_mlir.cli.main import main
from neptune_mlir.dialects.context import parse as parse_module
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.explain import listings
from neptune_mlir.driver.kernel import Source
from neptune_mlir.driver.page.costs import cost_of
from neptune_mlir.driver.page.page import Request, page
from neptune_mlir.driver.page.proofs import counts
from neptune_mlir.driver.page.provenance import sources_of
from neptune_mlir.driver.page.sizes import AssumedSizes, parse_sizes
from neptune_mlir.driver.page.tiles import EMPTY, FULL, PARTIAL, picture_of
from neptune_mlir.errors import UsageError

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "hr", "img", "input", "link", "col"}
PROGRAMS = {
    "attention": (ROOT / "examples" / "attention.mlir", "cpu", 1024),
    "decode": (ROOT / "examples" / "windowed_decode.mlir", "sm_90a", 16384),
    "unfused": (ROOT / "test" / "inputs" / "running_sum.mlir", "cpu", 1024),
}


class Reader(html.parser.HTMLParser):
    """Elements, ids, links and texts of a page; checks that elements close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.found, self.words = [], [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.found.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"][1:]] if "href" in given else []
        self.links += given.get("data-to", "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)

    def with_class(self, name):
        return [a for _, a in self.found if name in a.get("class", "").split()]


@pytest.fixture(scope="module")
def modules():
    found = {}
    for name, (path, target, size) in PROGRAMS.items():
        text = path.read_text()
        written, _ = lower_text(text, str(path), target, None, "neptune")
        fused, facts = lower_text(text, str(path), target, None, "fused")
        found[name] = Request(written, fused, text, path.name, target, facts["schedule"],
                              facts["remarks"], size)  # fmt: skip
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_is_whole_and_needs_no_network(modules, name):
    text = page(modules[name])
    assert page(modules[name]) == text
    reader = Reader(text)
    assert len(set(reader.ids)) == len(reader.ids)
    assert set(reader.links) <= set(reader.ids)
    rest = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn|@import|url\((?!#)|<link|<iframe|src=", rest)
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text
    drawings = [a for tag, a in reader.found if tag == "svg"]
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in drawings)


@pytest.mark.parametrize("name", ["attention", "decode"])
def test_every_correction_is_there_with_its_proof(modules, name):
    request = modules[name]
    (listing,) = listings(request.fused, request.text)
    streams = list(listing.running)
    corrections, claims, proved = counts(listing, streams)
    assert corrections == 2 and claims == proved == 10
    reader = Reader(page(request))
    shown = {a["data-value"] for a in reader.with_class("card")}
    assert shown == set(listing.running[streams[0]])
    assert len(reader.with_class("status")) == claims
    assert len(reader.with_class("repair-math")) == corrections
    # every claim and every repair is typeset
    assert not re.search(r"<div class='(?:scroll|repair-math scroll)'><code>", page(request))


def test_lines_go_with_the_lines_that_they_became(modules):
    reader = Reader(page(modules["attention"]))
    lines = {a["id"]: a for a in reader.with_class("ln") if "id" in a}
    # the maximum (s3) is the running maximum (f7); the division (s6) is part of the last sum
    assert "f7" in lines["s3"]["data-to"].split()
    assert lines["s6"]["data-to"] == lines["s7"]["data-to"]
    assert all("data-to" in lines[f"s{k}"] for k in range(1, 8))


def test_lines_of_a_formula_whose_nests_have_one_place():
    text = Source.of(ops.softmax_weighted_sum(cols=64)).text
    text = re.sub(r" loc\([^)]*\)", "", text)  # every op has the place where it is parsed
    text = " ".join(line for line in text.splitlines() if not line.startswith("#loc"))
    written, _ = lower_text(text, "one-line.mlir", "cpu", None, "neptune")
    fused, _ = lower_text(text, "one-line.mlir", "cpu", None, "fused")
    (before,), (after,) = listings(written), listings(fused)
    found = sources_of(before, after)
    (stream,) = after.running
    produced = list(stream.regions[0].blocks[0].operations)[-1].operation.operands
    sources = [found[v.owner.operation] for v in produced]
    assert [op.attributes["combiner"].value for op in sources] == ["max", "add", "add"]
    assert len(set(sources)) == 3


def test_boxes_of_the_dataflow_lead_to_lines(modules):
    text = page(modules["attention"])
    # the running maximum's box leads to its line
    assert re.search(r'<a href="#f7"><rect class="box carried".*?>max0</text>', text)
    assert 'id="f7"' in text


def test_tiles_under_a_causal_mask(modules):
    request = modules["attention"]
    (listing,) = listings(request.fused, request.text)
    (stream,) = listing.running
    picture = picture_of(listing, stream, AssumedSizes(["q", "k", "v"]))
    across = picture.length // picture.tile
    assert [picture.count(k) for k in (FULL, PARTIAL, EMPTY)] == [
        across * (across - 1) // 2, across, across * (across - 1) // 2,
    ]  # fmt: skip
    assert picture.live == pytest.approx((1024 + 1) / 2048)


def test_a_window_is_read_alone(modules):
    request = modules["decode"]
    (listing,) = listings(request.fused, request.text)
    (stream,) = listing.running
    sizes = AssumedSizes(["q", "k", "v"], 16384, programs=132)
    picture = picture_of(listing, stream, sizes)
    assert picture.live == 1024 / 16384 and picture.seen == picture.live
    cost = cost_of(listing, sizes, lambda s: picture.live, lambda s: picture.seen)
    assert cost.kernels[0].read["k"] == 8 * 1024 * 128 * 2
    # two products of 2 operations for each of 32 heads, 1024 keys and 128 columns, and some more
    least = 2 * 2 * 32 * 1024 * 128
    assert least < cost.flops < 1.2 * least


def test_what_is_not_fused_says_why(modules):
    text = Reader(page(modules["unfused"])).text
    assert "No reductions were fused" in text and "it reads what another result is" in text


def test_names_are_escaped():
    module = parse_module("func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {\n"
                          "  return %x : tensor<?xf32>\n}")  # fmt: skip
    remarks = ["a.mlir:1:1: remark: not fused: a < b & <script>"]
    text = page(Request(module, module, "", "<title>.mlir", "cpu", "streamed", remarks))
    assert "&lt;title&gt;" in text and "a &lt; b &amp; &lt;script&gt;" in text
    Reader(text)


def test_sizes():
    assert parse_sizes("4096,k.2=8") == (4096, {"k.2": 8})
    for wrong in ("0", "k.2=", "=3", "k.2=x"):
        with pytest.raises(UsageError, match="--size has"):
            parse_sizes(wrong)


def test_a_profile_becomes_a_timeline(modules, tmp_path, capsys):
    row = {
        "bundle": "b", "kernel": "k", "length": 64,
        "roles": [{"role": "producer", "cycles": 9.0, "first_issue": None,
                   "percent": {"start a copy": 60.0, "other work": 40.0}}],
        "tracks": [{"role": "producer", "start": 0, "end": 9, "products": [[1, 4]],
                    "spans": [["start a copy", 1, 6]]}],
    }  # fmt: skip
    whole, shares = dict(row), dict(row, tracks=[])
    for profile in (whole, shares):
        found = Request(**{**vars(modules["unfused"]), "profile": [profile]})
        reader = Reader(page(found))
        assert "Warps over time" in reader.text
        assert len([a for a in reader.with_class("span") if "copy" in a["class"]]) == 1
    (tmp_path / "p.json").write_text("[{}]")
    given = ["explain", str(PROGRAMS["unfused"][0]), "--html", str(tmp_path / "o.html")]
    assert main([*given, "--profile", str(tmp_path / "p.json")]) != 0
    assert "holds no profile" in capsys.readouterr().err


def pixels(path):
    """Width, height, and the share of pixels that are not of the commonest colour."""
    data = path.read_bytes()
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and colour in (2, 6)
    chunks, place = b"", 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            chunks += data[place + 8 : place + 8 + size]
        place += size + 12
    row = width * (3 if colour == 2 else 4) + 1
    raw = zlib.decompress(chunks)
    marked = sum(any(raw[k * row + 1 : (k + 1) * row]) for k in range(height))
    return width, height, marked / height


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1400, 400])
def test_chromium_draws_it(modules, tmp_path, width):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    (tmp_path / "p.html").write_text(
        f"<body style='margin:0'><iframe srcdoc='{html.escape(page(modules['attention']))}' "
        f"style='border:0;width:{width}px;height:2000px'></iframe><script>onload = () => {{"
        "const d = document.querySelector('iframe').contentDocument;"
        "document.title = [d.documentElement.scrollWidth, d.querySelectorAll('.on').length,"
        " (d.querySelector('#s3').dispatchEvent(new Event('mouseenter')),"
        "  d.querySelectorAll('.ln.on').length)].join(' ')}</script>"
    )  # in a frame: Chromium has no window of less than 500 pixels
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--window-size={max(width, 500)},2000"]  # fmt: skip
    where = f"file://{tmp_path}/p.html"
    shot = tmp_path / "shot.png"
    subprocess.run([*command, f"--screenshot={shot}", where], check=True, capture_output=True)
    dom = subprocess.run([*command, "--dump-dom", where], check=True, capture_output=True,
                         text=True).stdout  # fmt: skip
    wide, before, lit = map(int, re.search(r"<title>(\d+) (\d+) (\d+)</title>", dom).groups())
    assert wide <= width, "the page scrolls sideways"
    assert before == 0 and lit > 1
    drawn, _, marked = pixels(shot)
    assert drawn == max(width, 500) and marked > 0.5

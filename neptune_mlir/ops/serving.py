# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as servers need it: caches in pages, sequences of different lengths, shared latents.

Nothing here says how to run it. A page is read through a table, and a length bounds the loop over
keys: pages that a sequence does not have are never read, whatever the table holds there, and what
stands in a page behind the sequence's end is never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.notation import (
    Axis,
    Expr,
    Program,
    Tensor,
    cast,
    exp,
    inf,
    log,
    maximum,
    minimum,
    sum,
    where,
)
from neptune_mlir.ops.attention import check_options, shaped, softmax_sum

# element types of a cache by the names that users give them
_CACHES = {
    **{name: name for name in ("f16", "bf16", "f32", "f64")}, "e4m3": FLOAT8, "int8": "i8",
}  # fmt: skip
_BYTES = ("e4m3", "int8")
_WIDTHS = {"e4m3": 8, "int8": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}  # bits
_FAR = 2**30  # keys: no sequence has as many


@dataclass(frozen=True)
class _Mask:
    """Which keys a query sees beside those that exist."""

    causal: bool
    window: Expr | int | None

    def of(self, s: Expr, exists: Expr, key: Expr, query: Expr) -> Expr:
        s = where(exists, s, -inf)
        if self.causal:
            s = where(key <= query, s, -inf)
        return s if self.window is None else where(query - key < self.window, s, -inf)


class _Pages:
    """A cache in pages: keys `j` of sequence `b` stand in slot `j % page_size` of a page."""

    def __init__(self, p: Program, page_size: int, b: Axis):
        self._size = page_size
        self.pages, self.slot = p.axis("page", None), p.axis("slot", page_size)
        self.most = p.axis("max_pages", None)
        self._program, self._batch = p, b

    def place(self) -> None:
        """Takes the arguments that say where keys stand, and makes the axis of keys."""
        p, b = self._program, self._batch
        self._table = p.input("table", b, self.most, dtype="i32")
        self._lengths = p.input("lengths", b, dtype="i32")
        self.keys = p.axis("j", self.most.size * self._size)
        self.length = self._lengths[b]
        self.exists = self.keys < self.length

    def at(self, cache: Tensor, *rest: Any) -> Expr:
        """The element of a cache at the key at hand."""
        place = (self._page(), self.keys % self._size, *rest)
        return cache[place]

    def scales(self, kind: str, name: str, *heads: Axis) -> Tensor:
        """A tensor of scales: one for each head, token or page."""
        p = self._program
        axes = {"head": heads or (p.axis("all", 1),), "page": (self.pages, *heads),
                "token": (self.pages, self.slot, *heads)}[kind]  # fmt: skip
        return p.input(name, *axes)

    def scale(self, kind: str, scales: Tensor, *heads: Any) -> Expr:
        """That of the key at hand."""
        if kind == "head":
            return scales[heads or (0,)]
        slot = () if kind == "page" else (self.keys % self._size,)
        place = (self._page(), *slot, *heads)
        return scales[place]

    def _page(self) -> Expr:
        return self._table[self._batch, self.keys // self._size]


@dataclass(frozen=True)
class _Cache:
    """Elements of keys or values as a program computes with them.

    Numbers narrower than the queries are widened, which is exact: weights are rounded to the type
    of the values. A scale that all keys share waits until they are added up. Of keys each scale
    does: it multiplies a score. A scale of one value is multiplied before the rounding to `dtype`:
    weights may be so small that nothing would be left of them times a scale in f16.
    """

    kv_dtype: str
    dtype: str
    scales: str | None

    def widened(self, x: Expr) -> Expr:
        return cast(x, self.dtype) if _WIDTHS[self.kv_dtype] < _WIDTHS[self.dtype] else x

    def values(
        self, x: Expr, scale: Expr | None, exists: Expr | None = None
    ) -> tuple[Expr, Expr | None]:
        """A value, 0 where it does not exist, and what multiplies the sum of all."""
        x = self.widened(x if exists is None else where(exists, x, 0))
        if scale is None or self.scales == "head":
            return x, scale
        scale = scale if exists is None else where(exists, scale, 0)
        wide = "f64" if self.dtype == "f64" else scale.dtype
        return cast(cast(x, wide) * scale, self.dtype), None


def paged_attention(
    *, head_dim: int, page_size: int, v_dim: int | None = None, group: int = 1,
    q_len: int | None = 1, dtype: str = "f32", kv_dtype: str | None = None, causal: bool = True,
    window: int | str | None = None, softcap: float | None = None, alibi: bool = False,
    sink: bool = False, scale: float | None = None, return_lse: bool = False,
    kv_scales: str | None = None, tree: bool = False, name: str = "paged_attention",
) -> Program:  # fmt: skip
    """Attention of the last queries of each sequence on a cache in pages.

    Args:
        head_dim: of q and k; `v_dim` (default the same) of v and the result.
        page_size: keys of a page; `group`: query heads that share a key head.
        q_len: queries of each sequence, its last ones; None: known at run time.
        dtype: of q and the result: f16, bf16, f32 or f64.
        kv_dtype: of the cache: one of these (default `dtype`), e4m3 or int8.
        causal, window, softcap, alibi, sink, scale, return_lse: as those of `attention`.
        kv_scales: of a cache in 8 bits, which is its numbers times scales: one for each "head",
            each "token" of a head, or each "page" of a head. None: 1.
        tree: the queries are guesses that branch: which of the last q_len keys each sees, an
            argument says instead of `causal`; it sees all keys before. q_len is at most 64.

    Returns:
        A program with arguments q [batch, heads, q_len, head_dim], k_pages and v_pages
        [pages, page_size, kv_heads, head_dim or v_dim], table [batch, max_pages] i32, lengths
        [batch] i32 (keys of each sequence, those of its queries included; at most
        max_pages * page_size), then those of the options, in their order: k_scales and v_scales
        f32, [kv_heads], [pages, page_size, kv_heads] or [pages, kv_heads]; tree
        [batch, q_len, q_len] i1. The result is [batch, heads, q_len, v_dim], 0 (and a
        log-sum-exp of -inf) where a query sees no key.

    Raises:
        UsageError: options that do not fit together.
    """
    check_options(head_dim, v_dim, dtype, window, softcap)
    numbers = _check_cache(dtype, kv_dtype, kv_scales, page_size)
    p = Program(name)
    b, h, hk = _heads(p, group)
    i = p.axis("i", q_len)
    d, e = p.axis("d", head_dim), p.axis("e", v_dim or head_dim)
    cache, stored = _Pages(p, page_size, b), _CACHES[numbers.kv_dtype]
    q = p.input("q", b, h, i, d, dtype=dtype)
    k = p.input("k_pages", cache.pages, cache.slot, hk, d, dtype=stored)
    v = p.input("v_pages", cache.pages, cache.slot, hk, e, dtype=stored)
    cache.place()
    mask = _Mask(causal and q_len != 1 and not tree, _window(p, window))
    slope, sink_logit = _of_heads(p, h, alibi, sink)
    shared = h // group if group > 1 else h
    of_key, of_value = (
        cache.scale(kv_scales, cache.scales(kv_scales, n, hk), shared) if kv_scales else None
        for n in ("k_scales", "v_scales")
    )
    position = cache.length - i.size + i
    s = sum(q[b, h, i, d] * numbers.widened(cache.at(k, shared, d)), d)
    s = _times(s, _scale(scale, head_dim), of_key)
    s = shaped(s, cache.keys - position, softcap, slope)
    if tree:
        s = where(_seen_in_tree(p, cache, b, i, q_len), s, -inf)
    s = mask.of(s, cache.exists, cache.keys, position)
    value, at_end = numbers.values(cache.at(v, shared, e), of_value, cache.exists)
    return _give(p, s, cache.keys, value, sink_logit, (b, h, i), e, dtype, return_lse, at_end)


def latent_attention(
    *, latent_dim: int = 512, rope_dim: int = 64, page_size: int, scale: float,
    q_len: int | None = 1, causal: bool = True, dtype: str = "f32", kv_dtype: str | None = None,
    return_lse: bool = False, kv_scales: str | None = None, name: str = "latent_attention",
) -> Program:  # fmt: skip
    """Attention of all heads on one cache of latents (multi-head latent attention, absorbed).

    A key is all of a latent's row; its value is the first `latent_dim` elements of it.

    Args:
        latent_dim, rope_dim: elements of the latent, and of the part with rotary positions.
        page_size: keys of a page.
        scale: of the scores (that of the heads before absorption; there is no default).
        q_len: queries of each sequence, its last ones; None: known at run time.
        causal: a query sees keys at its own position and before.
        dtype: of the queries and the result; `kv_dtype` of the cache as that of `paged_attention`.
        return_lse: a second result [batch, heads, q_len], f32: log-sum-exp of the scores.
        kv_scales: of a cache in 8 bits: one for each "token" or "page", or for the one "head".

    Returns:
        A program with arguments q_latent [batch, heads, q_len, latent_dim], q_rope
        [batch, heads, q_len, rope_dim], pages [pages, page_size, latent_dim + rope_dim], table
        [batch, max_pages] i32 and lengths [batch] i32, with `kv_scales` also scales f32,
        [pages, page_size], [pages] or [1]. The result is [batch, heads, q_len, latent_dim].

    Raises:
        UsageError: options that do not fit together.
    """
    check_options(latent_dim, rope_dim, dtype, None, None)
    numbers = _check_cache(dtype, kv_dtype, kv_scales, page_size)
    p = Program(name)
    b, h, i = p.axis("b"), p.axis("h"), p.axis("i", q_len)
    d, r = p.axis("d", latent_dim), p.axis("r", rope_dim)
    e, row = p.axis("e", latent_dim), p.axis("row", latent_dim + rope_dim)
    cache = _Pages(p, page_size, b)
    q_latent = p.input("q_latent", b, h, i, d, dtype=dtype)
    q_rope = p.input("q_rope", b, h, i, r, dtype=dtype)
    rows = p.input("pages", cache.pages, cache.slot, row, dtype=_CACHES[numbers.kv_dtype])
    cache.place()
    of_row = cache.scale(kv_scales, cache.scales(kv_scales, "scales")) if kv_scales else None

    position = cache.length - i.size + i
    of_latent = sum(q_latent[b, h, i, d] * numbers.widened(cache.at(rows, d)), d)
    of_rope = sum(q_rope[b, h, i, r] * numbers.widened(cache.at(rows, r + latent_dim)), r)
    s = _times(of_latent + of_rope, scale, of_row)
    s = _Mask(causal and q_len != 1, None).of(s, cache.exists, cache.keys, position)
    value, at_end = numbers.values(cache.at(rows, e), of_row, cache.exists)
    return _give(p, s, cache.keys, value, None, (b, h, i), e, dtype, return_lse, at_end)


def join_attention(
    *, v_dim: int, dtype: str = "f32", return_lse: bool = False, name: str = "join_attention"
) -> Program:
    """What two sets of keys give together, of the results of each alone.

    Both results are weighted by what their log-sum-exps say, as the parts of one softmax are
    joined. So keys that many sequences share (a cascade) can be attended to once for all of them.

    Args:
        v_dim: of the results; `dtype` of them: f16, bf16, f32 or f64.
        return_lse: a second result [batch, heads, q_len], f32: log-sum-exp of all scores.

    Returns:
        A program with arguments first [batch, heads, q_len, v_dim], first_lse
        [batch, heads, q_len] f32, second and second_lse. The result is as `first`. A part without
        keys (log-sum-exp -inf) adds nothing, whatever stands in it.

    Raises:
        UsageError: options that mean nothing.
    """
    check_options(v_dim, None, dtype, None, None)
    p = Program(name)
    b, h, i, e = p.axis("b"), p.axis("h"), p.axis("i"), p.axis("e", v_dim)
    parts = []
    for name in ("first", "second"):
        value = p.input(name, b, h, i, e, dtype=dtype)[b, h, i, e]
        lse = p.input(f"{name}_lse", b, h, i, dtype="f64" if dtype == "f64" else "f32")[b, h, i]
        parts.append((where(lse == -inf, 0.0, value), lse))
    (first, one), (second, two) = parts
    most = maximum(one, two)
    guard = where(most == -inf, 0.0, most)
    a, c = exp(one - guard), exp(two - guard)
    total = a + c
    out = where(total == 0, 0.0, (a * first + c * second) / total)
    p.output(out, b, h, i, e, dtype=dtype)
    if return_lse:
        p.output(guard + log(total), b, h, i)
    return p


def ragged_attention(
    *, head_dim: int, v_dim: int | None = None, group: int = 1, dtype: str = "f32",
    causal: bool = True, window: int | str | None = None, softcap: float | None = None,
    alibi: bool = False, sink: bool = False, scale: float | None = None, return_lse: bool = False,
    kv_dtype: str | None = None, kv_scales: str | None = None, name: str = "ragged_attention",
) -> Program:  # fmt: skip
    """Attention of sequences that stand one behind the other, without padding.

    Args:
        head_dim, v_dim, group, dtype: as those of `paged_attention`.
        causal, window, softcap, alibi, sink, scale, return_lse: as those of `attention`; the last
            query of a sequence stands at its last key.
        kv_dtype, kv_scales: of k and v, as those of `paged_attention`, for each "head" or "token":
            k_scales and v_scales are [kv_heads] or [kv_tokens, kv_heads], f32.

    Returns:
        A program with arguments q [tokens, heads, head_dim], k and v
        [kv_tokens, kv_heads, head_dim or v_dim], q_starts and kv_starts [batch + 1] i32 (the first
        token of each sequence, and the number of all), then those that the options add. The result
        is [tokens, heads, v_dim], the log-sum-exp [tokens, heads]. Sequences of no token are
        allowed. All values have to be finite: tiles may span two sequences, and a weight of 0
        times infinity is none.

    Raises:
        UsageError: options that do not fit together.
    """
    check_options(head_dim, v_dim, dtype, window, softcap)
    numbers = _check_cache(dtype, kv_dtype, kv_scales)
    p = Program(name)
    t, h = p.axis("t"), p.axis("h")
    hk = p.axis("hk") if _check_group(group) > 1 else h
    j, d, e = p.axis("j"), p.axis("d", head_dim), p.axis("e", v_dim or head_dim)
    ends = p.axis("ends")
    n = p.axis("n", ends.size - 1)
    q = p.input("q", t, h, d, dtype=dtype)
    k = p.input("k", j, hk, d, dtype=_CACHES[numbers.kv_dtype])
    v = p.input("v", j, hk, e, dtype=_CACHES[numbers.kv_dtype])
    q_starts = p.input("q_starts", ends, dtype="i32")
    kv_starts = p.input("kv_starts", ends, dtype="i32")
    near = _window(p, window)  # before what heads have, as in `paged_attention`
    slope, sink_logit = _of_heads(p, h, alibi, sink)
    first, end, position = _seen(p, t, n, (q_starts, kv_starts), causal, near)
    shared = h // group if group > 1 else h
    of_key = of_value = None
    if kv_scales:
        at = (hk,) if kv_scales == "head" else (j, hk)
        here_too = (shared,) if kv_scales == "head" else (j, shared)
        of_key, of_value = (p.input(n, *at)[here_too] for n in ("k_scales", "v_scales"))
    s = sum(q[t, h, d] * numbers.widened(k[j, shared, d]), d)
    s = _times(s, _scale(scale, head_dim), of_key)
    s = shaped(s, j - position, softcap, slope)
    s = where((first <= j) & (j < end), s, -inf)
    value, at_end = numbers.values(v[j, shared, e], of_value)
    return _give(p, s, j, value, sink_logit, (t, h), e, dtype, return_lse, at_end)


def _seen(
    p: Program, t: Axis, n: Axis, starts: tuple[Tensor, Tensor], causal: bool,
    window: Expr | int | None,
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """The keys that a token sees, from the first to one behind the last, and its own position.

    Each is found once for each token, so that a mask compares positions with two numbers. A token
    of no sequence sees none.
    """
    q_starts, kv_starts = starts
    here = (q_starts[n] <= t) & (t < q_starts[n + 1])  # in one sequence for each token
    stands = cast(t, "i32") + kv_starts[n + 1] - q_starts[n + 1]  # if it is in sequence n

    def of_sequence(number: Expr) -> Expr:
        return sum(where(here, number, 0), n)

    seen_from = kv_starts[n]
    if window is not None:
        near = cast(minimum(window, p.constant(_FAR, "index")), "i32")
        seen_from = maximum(seen_from, stands + 1 - near)
    end = of_sequence(stands + 1 if causal else kv_starts[n + 1])
    return of_sequence(seen_from), end, end - 1 if causal else of_sequence(stands)


_WORD = 64  # bits that say which keys a query of a tree sees


def _seen_in_tree(p: Program, cache: _Pages, b: Axis, i: Axis, q_len: int | None) -> Expr:
    """Whether a query of a tree sees a key: those before the tree, and of its own keys some.

    The keys of the tree stand where the sequence's length says, so the row of a query becomes a
    word, of which the key at hand has one bit.
    """
    if q_len is None or q_len > _WORD:
        raise UsageError(f"a tree of {q_len or 'any number of'} queries",
                         hint=f"q_len is a number up to {_WORD}")  # fmt: skip
    t = p.axis("t", q_len)
    tree = p.input("tree", b, i, t, dtype="i1")
    one = p.constant(1, "i64")
    word = sum(where(tree[b, i, t], one << cast(t, "i64"), p.constant(0, "i64")), t)
    number = cache.keys - (cache.length - q_len)
    inside = cast(minimum(maximum(number, 0), q_len - 1), "i64")
    return (number < 0) | (((word >> inside) & one) == one)


def _give(
    p: Program, s: Expr, j: Axis, value: Expr, sink: Expr | None, rows: tuple[Axis, ...], e: Axis,
    dtype: str, return_lse: bool, at_end: Expr | None = None,
) -> Program:  # fmt: skip
    out, lse = softmax_sum(s, j, value, sink)
    p.output(_scaled(out, at_end), *rows, e, dtype=dtype)
    if return_lse:
        p.output(lse, *rows)
    return p


def _heads(p: Program, group: int) -> tuple[Axis, Axis, Axis]:
    """The axes of sequences, of query heads and of key heads."""
    b, h = p.axis("b"), p.axis("h")
    return b, h, p.axis("hk") if _check_group(group) > 1 else h


def _of_heads(p: Program, h: Axis, alibi: bool, sink: bool) -> tuple[Expr | None, Expr | None]:
    """What the options give each head: the slope of its bias, and its sink."""
    slope = p.input("slope", h)[h] if alibi else None
    return slope, p.input("sink", h)[h] if sink else None


def _check_group(group: int) -> int:
    if group < 1:
        raise UsageError(f"group is {group}", hint="the number of query heads per key head")
    return group


def _check_cache(
    dtype: str, kv_dtype: str | None, kv_scales: str | None, page_size: int | None = None
) -> _Cache:
    """`page_size`: None of a cache that is not in pages."""
    paged = page_size is not None
    if paged and (not isinstance(page_size, int) or page_size < 1):
        raise UsageError(f"page_size is {page_size!r}", hint="a positive int, known when compiling")
    kv_dtype = kv_dtype or dtype
    if kv_dtype not in _CACHES:
        raise UsageError(f"a cache of {kv_dtype}", hint=f"kv_dtype is one of {', '.join(_CACHES)}")
    kinds = ("head", "token", "page") if paged else ("head", "token")
    if kv_scales is not None and kv_scales not in kinds:
        raise UsageError(f"kv_scales is {kv_scales!r}", hint=f"None, or one of {', '.join(kinds)}")
    if kv_scales and kv_dtype not in _BYTES:
        raise UsageError(f"scales of a cache of {kv_dtype}", hint="kv_dtype is e4m3 or int8")
    return _Cache(kv_dtype, dtype, kv_scales)


def _scaled(x: Expr, scale: Expr | None) -> Expr:
    return x if scale is None else x * scale


def _times(s: Expr, scale: float, of_key: Expr | None) -> Expr:
    """Scaled scores: by one product, where a key has a scale, too."""
    return s * (scale if of_key is None else cast(of_key, s.dtype) * scale)


def _scale(scale: float | None, head_dim: int) -> float:
    return head_dim**-0.5 if scale is None else scale


def _window(p: Program, window: int | str | None) -> Expr | int | None:
    return p.scalar(window, "index") if isinstance(window, str) else window

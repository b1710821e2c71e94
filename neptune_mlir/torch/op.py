# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.ops.neptune.attention`: an operation of torch, with a fake kernel.

    attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, Tensor[] captured, str mods,
              float scale, bool is_causal, bool return_lse) -> (Tensor, Tensor)

`mods` names modifiers of this process (`Mods.key`), and `captured` are their tensors. The second
result is empty, of shape [0], unless `return_lse`. A kernel is compiled for each structure: dtypes,
head dimensions, modifiers; batch sizes, numbers of heads and lengths are those of a call.
"""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neptune_mlir import ops
from neptune_mlir.driver.kernel import Kernel, compile
from neptune_mlir.driver.on_demand import Coming
from neptune_mlir.errors import NeptuneError, ToolError, UsageError
from neptune_mlir.frontend.notation import Expr, Program, cast, inf, where
from neptune_mlir.targets.chips import TARGETS, best_for
from neptune_mlir.targets.nvidia import architecture
from neptune_mlir.torch import again
from neptune_mlir.torch.mods import DTYPES, Keep, ModPlan
from neptune_mlir.torch.trace import POSITIONS, Recent, Trace

Modify = Callable[[torch.Tensor, dict[str, torch.Tensor]], torch.Tensor]


@dataclass(frozen=True)
class Mods:
    """The modifiers of a call: how they are said, and the names of their captured tensors."""

    score: ModPlan | None = None
    mask: ModPlan | None = None

    @functools.cached_property
    def key(self) -> str:
        parts = [p.key if p else "" for p in (self.score, self.mask)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24] if any(parts) else ""

    def tensors(self, captured: Sequence[torch.Tensor]) -> list[tuple[ModPlan, dict[str, Any]]]:
        """Each modifier with its own of the captured tensors, by attribute."""
        found, at = [], 0
        for plan in (self.score, self.mask):
            if plan:
                names = list(plan.shapes)
                found.append((plan, dict(zip(names, captured[at:], strict=False))))
                at += len(names)
        return found

    @staticmethod
    def names(prefix: str, plan: ModPlan | None) -> list[str]:
        """What the program calls the inputs of a modifier."""
        return [f"{prefix}{k}" for k in range(len(plan.sources))] if plan else []

    def inputs_of(self, needs: Sequence[bool]) -> set[str]:
        """The program's inputs that come from captured tensors which `needs` marks."""
        found, at = set(), 0
        for prefix, plan in (("x", self.score), ("y", self.mask)):
            if plan:
                marked = {n for n, x in zip(plan.shapes, needs[at:], strict=False) if x}
                numbers = (k for k, s in enumerate(plan.sources) if plan.reads(s) & marked)
                found |= {f"{prefix}{k}" for k in numbers}
                at += len(plan.shapes)
        return found

    def pull(
        self, captured: Sequence[torch.Tensor], needs: Sequence[bool],
        adjoints: dict[str, torch.Tensor], sizes: dict[str, int], device: torch.device,
    ) -> list[torch.Tensor | None]:  # fmt: skip
        """The adjoints of captured tensors, from those of the program's inputs by name."""
        found: list[torch.Tensor | None] = []
        for prefix, (plan, tensors) in zip(
            [p for p, plan in (("x", self.score), ("y", self.mask)) if plan],
            self.tensors(captured), strict=True,
        ):  # fmt: skip
            marked = dict(zip(tensors, needs[len(found) :], strict=False))
            mine = {k: adjoints[n] for k, n in enumerate(self.names(prefix, plan)) if n in adjoints}
            found += plan.pull(tensors, marked, mine, sizes, device)
        return found


_NONE = Mods()
_mods: dict[str, Mods] = {"": _NONE}  # by key; a graph may hold a key as long as the process lives
_plans: dict[Any, ModPlan] = {}  # by graph, of the traces that are kept
_keys: dict[Any, str] = {}  # by the graphs of both modifiers
_kernels: dict[Any, Kernel] = {}


def mods_of(score: Trace | None, mask: Trace | None) -> tuple[str, list[torch.Tensor]]:
    """The key of modifiers, and their captured tensors in the operation's order.

    Raises:
        InputError: what a modifier does to the score has no form in a kernel.
    """
    if score is None and mask is None:
        return "", []
    of = tuple(None if t is None else t.graph for t in (score, mask))
    key = _keys.get(of)
    if key is None:
        if len(_keys) > 512:
            _keys.clear()
        mods = Mods(*(None if t is None else plan_of(t) for t in (score, mask)))
        key = _keys[of] = mods.key
        _mods.setdefault(key, mods)
    return key, [x for t in (score, mask) if t for x in t.tensors.values()]


def mods_again(
    score: Recent | None, mask: Recent | None
) -> tuple[str, list[torch.Tensor]] | None:  # fmt: skip
    """What `mods_of` said of the same modifiers, where they hold what they held. The types and
    shapes of their tensors may be others."""
    key = _keys.get((score and score.graph, mask and mask.graph))
    if key is None:
        return None
    captured = []
    for of in (score, mask):
        if of is not None:
            tensors = of.captured()
            if tensors is None:
                return None
            captured += tensors
    return key, captured


def plan_of(trace: Trace) -> ModPlan:
    """The plan of a trace, made once for those that share a graph."""
    if trace.graph not in _plans:
        if len(_plans) > 512:
            _plans.clear()
        _plans[trace.graph] = ModPlan(trace)
    return _plans[trace.graph]


def target_of(device: torch.device) -> str:
    """The compiler's target for a device. Raises ToolError where there is none."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise ToolError(f"no target for device '{device}'", hint="a CPU, or a GPU that is 'cuda'")
    if torch.version.hip is not None:  # torch calls AMD's GPUs so, too
        return _chip(torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0])
    return _chip(architecture(torch.cuda.get_device_capability(device)))


def coming_of(arguments: Sequence[torch.Tensor]) -> Coming | None:
    """A call with these arguments, on a GPU."""
    return call_of([tuple(x.shape) for x in arguments], arguments[0].device)


def call_of(shapes: Sequence[tuple[int, ...]], device: torch.device) -> Coming | None:
    """A call with arguments of these shapes, on a GPU."""
    if device.type != "cuda":
        return None
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return Coming(shapes, (), processors)


@functools.cache
def _chip(name: str) -> str:
    best = best_for(name)
    if best is None:
        raise ToolError(f"no target for a GPU of architecture {name}", hint=", ".join(TARGETS))
    return best.name


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str, scale: float, is_causal: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """The operation on tensors with memory, outside of autograd. Arguments are checked already. The
    log-sum-exp is None where nobody asked for it.

    Raises:
        NeptuneError: the kernel cannot be compiled.
    """
    tensors = (q, k, v, *captured) if attn_mask is None else (q, k, v, attn_mask, *captured)
    options = ("operation", mods, scale, is_causal, return_lse, attn_mask is None)
    made = again.last(options, tensors)
    if made is not None:
        return made
    like = again.signature(tensors, options)
    made = again.call(tensors, like)
    if made is None:
        key = (*key_of(q, k, v, attn_mask, mods, scale, is_causal), return_lse)
        kernel = _kernels.get(key)
        arguments = [by_rows(x) for x in arguments_of(q, k, v, attn_mask, captured, mods)]
        if kernel is None:
            program = program_of(
                q, k, v, attn_mask, mods, scale, is_causal, return_lse, rows_first=True
            )
            target, coming = target_of(q.device), coming_of(arguments)
            kernel = _kernels[key] = compile(program, target=target, coming=coming)
        found = kernel(*arguments)
        again.remember(tensors, like, kernel, arguments)
        out, lse = found if return_lse else (found, None)
        # The heads of a row lie together in memory, as torch's own: models go on with rows of all
        # heads, and a copy costs as much as small attention.
        made = out.transpose(1, 2), lse
    again.note(options, tensors)
    return made


def by_rows(x: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory has its numbers, and stride 1 along the last dimension, along which
    kernels read (of a column along it): this one, or a copy. (The gradient of a sum is one number,
    expanded.)"""
    x = x.resolve_neg()
    along = -2 if x.dim() > 1 and x.shape[-1] == 1 else -1
    return x if x.dim() == 0 or x.shape[along] <= 1 or x.stride(along) == 1 else x.contiguous()


def key_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    mods: str, scale: float, is_causal: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """What calls that share a kernel have in common."""
    wide = None if attn_mask is None else (attn_mask.dtype, *map(_is_one, attn_mask.shape))
    return mods, q.dtype, *_static(q, k, v), wide, scale, is_causal, q.device


def _static(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[int, int, int]:
    """The numbers that a kernel is compiled for: both head dimensions and the group."""
    _, heads, _, dim = q.shape
    return int(dim), int(v.shape[3]), int(heads // max(k.shape[1], 1))


def _is_one(n: int) -> bool:
    return bool(n == 1)


def sizes_of(q: torch.Tensor, k: torch.Tensor) -> dict[str, int]:
    """The extents of b, h, q and kv in a call."""
    return dict(zip(POSITIONS, (*q.shape[:3], k.shape[2]), strict=True))


def mods_named(key: str) -> Mods:
    """The modifiers of this process that have this key."""
    return _mods[key]


def named_arguments(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """The arguments of the program, under the names of its inputs."""
    of = _mods[mods]
    names = ["q", "k", "v", *of.names("x", of.score)]
    names += [] if attn_mask is None else ["attn_mask"]
    names += of.names("y", of.mask)
    made = arguments_of(q, k, v, attn_mask, captured, mods)
    return dict(zip(names, made, strict=True))


def arguments_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str,
) -> list[torch.Tensor]:  # fmt: skip
    """The arguments of the program: tensors that autograd does not follow."""
    found = [_plain(x) for x in (q, k, v)]
    if attn_mask is None and not mods:
        return found
    sizes = sizes_of(q, k)
    of = dict(_mods[mods].tensors(captured))
    score, mask = _mods[mods].score, _mods[mods].mask
    if score:
        found += score.inputs(of[score], sizes, q.device)
    if attn_mask is not None:
        found.append(_plain(attn_mask))
    if mask:
        found += mask.inputs(of[mask], sizes, q.device)
    return found


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def program_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    mods: str, scale: float, is_causal: bool, return_lse: bool, *, rows_first: bool = False,
) -> Program:  # fmt: skip
    """The operation on tensors like these in index notation, batch, heads and lengths left open."""
    of_score, of_mask = _mods[mods].score, _mods[mods].mask

    def score_mod(s: Expr, b: Any, h: Any, i: Any, j: Any) -> Any:
        s = of_score.say(s, b, h, i, j, prefix="x") if of_score else s
        return s if attn_mask is None else _masked(s, (b, h, i, j), attn_mask)

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        return of_mask.say(b, h, i, j, prefix="y")

    head_dim, v_dim, group = _static(q, k, v)
    return ops.attention(
        head_dim=head_dim, v_dim=v_dim, group=group,
        dtype=DTYPES[q.dtype], scale=scale, causal=is_causal, align="start",
        score_mod=score_mod, mask_mod=mask_mod if of_mask else None, return_lse=return_lse,
        rows_first=rows_first,
    )  # fmt: skip


def _masked(s: Expr, at: tuple[Any, ...], mask: torch.Tensor) -> Expr:
    """`scaled_dot_product_attention`'s mask, broadcast along its dimensions of 1: conditions say
    what is seen, numbers are added."""
    program = s.program
    own = [
        program.axis(f"mask_{d}", 1 if _is_one(n) else None) for d, n in enumerate(mask.shape)
    ]
    read = program.input("attn_mask", *own, dtype=DTYPES[mask.dtype])[
        tuple(0 if _is_one(n) else a for n, a in zip(mask.shape, at, strict=True))
    ]
    return where(read, s, -inf) if mask.dtype is torch.bool else s + cast(read, s.dtype)


def dense(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, modify: Modify,
    attn_mask: torch.Tensor | None, scale: float, is_causal: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The same by torch, differentiable, with all scores in memory.

    `modify(scores, places)` applies modifiers; `places` are the positions along b, h, q and kv.
    """
    group = q.shape[1] // k.shape[1]
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    k, v = (x.repeat_interleave(group, 1).to(wide) for x in (k, v))
    s = q.to(wide) @ k.mT * scale
    places = {a: torch.arange(n, device=q.device, dtype=torch.int32)
              for a, n in zip(POSITIONS, s.shape, strict=True)}  # fmt: skip
    s = modify(s, places)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        s = s.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        s = s + attn_mask
    if is_causal:
        s = s.masked_fill(places["kv"] > places["q"][:, None], -math.inf)
    top = s.amax(-1, keepdim=True).detach() if s.shape[-1] else s.new_zeros(*s.shape[:-1], 1)
    top = top.masked_fill(top == -math.inf, 0)
    w = (s - top).exp()
    total = w.sum(-1, keepdim=True)
    out = (w @ v / total.masked_fill(total == 0, 1)).to(q.dtype)
    return out, (top + total.log()).squeeze(-1) if return_lse else q.new_empty(0)


def modify(mods: str, captured: Sequence[torch.Tensor], keep: Keep | None = None) -> Modify:
    """Modifiers on all scores; `keep` as of `ModPlan.over`."""

    def modify(s: torch.Tensor, places: dict[str, torch.Tensor]) -> torch.Tensor:
        axes = list(POSITIONS)
        for plan, tensors in _mods[mods].tensors(captured):
            if plan.takes_score:
                s = plan.over(plan.result, tensors, places, axes, s, keep)
            else:
                seen = plan.over(plan.result, tensors, places, axes, keep=keep)
                s = s.masked_fill(~seen, -math.inf)
        return s

    return modify


def written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str, scale: float, is_causal: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The operation as torch's own, for a compiler of graphs; laid out in memory as kernels do."""
    if attn_mask is not None and attn_mask.dtype is torch.bool and _is_one(attn_mask.shape[1]):
        attn_mask = _in_memory(torch.where(attn_mask, 0.0, -math.inf))
    modified = modify(mods, captured, _in_memory)
    out, lse = dense(q, k, v, modified, attn_mask, scale, is_causal, return_lse)
    return out.transpose(1, 2).contiguous().transpose(1, 2), lse


def _in_memory(x: torch.Tensor) -> torch.Tensor:
    """Numbers in memory (0 and 1 for conditions): inductor would work out for each head, and twice,
    what all of them read. (It has no other word for that; as a view this costs nothing.)"""
    x = torch.where(x, 1.0, 0.0) if x.dtype is torch.bool else x
    return x.as_strided(x.shape, x.stride())


def _new_result(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Memory of the result, laid out as kernels do."""
    batch, heads, rows, _ = q.shape
    return q.new_empty(batch, rows, heads, v.shape[3]).transpose(1, 2)


# What `torch.library.custom_op` would make, without the checks that it does in each call.
LIBRARY = torch.library.Library("neptune", "FRAGMENT")
LIBRARY.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, Tensor[] captured, str mods, "
    "float scale, bool is_causal, bool return_lse) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def attention_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str, scale: float, is_causal: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    given = q, k, v, attn_mask
    try:
        out, lse = run(*given, captured, mods, scale, is_causal, return_lse)
        return out, q.new_empty(0) if lse is None else lse
    except NeptuneError as error:  # a compiled graph has no other way to go
        warnings.warn(f"attention runs by torch: {error}", stacklevel=2)
    with torch.no_grad():
        out, lse = dense(q, k, v, modify(mods, captured), attn_mask, scale, is_causal, return_lse)
        return _new_result(q, v).copy_(out), lse


LIBRARY.impl("attention", torch._disable_dynamo(attention_op), "CompositeExplicitAutograd")


@torch.library.register_fake("neptune::attention", lib=LIBRARY)
def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor], mods: str, scale: float, is_causal: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    out = _new_result(q, v)
    if not return_lse:
        return out, q.new_empty(0)
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    return out, q.new_empty(q.shape[:3], dtype=wide)


@torch.library.register_vmap("neptune::attention", lib=LIBRARY)
def _mapped(
    info: Any, dims: tuple[Any, ...], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    attn_mask: torch.Tensor | None, captured: Sequence[torch.Tensor], mods: str, *options: Any,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int | None]]:  # fmt: skip
    """What is mapped over is more of the batch."""
    if mods:
        raise UsageError(
            "vmap of attention with modifiers", hint="call it on tensors with a larger batch"
        )
    n = info.batch_size

    def merged(x: torch.Tensor, dim: int | None) -> torch.Tensor:
        x = x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
        return x.flatten(0, 1)

    q, k, v = (merged(*each) for each in zip((q, k, v), dims, strict=False))
    if attn_mask is not None and (dims[3] is not None or attn_mask.shape[0] != 1):
        wide = attn_mask if dims[3] is None else attn_mask.movedim(dims[3], 0)
        wide = wide.expand(n, q.shape[0] // n, *wide.shape[-3:])
        attn_mask = wide.flatten(0, 1)
    out, lse = torch.ops.neptune.attention(q, k, v, attn_mask, captured, mods, *options)
    if not options[2]:
        return (out.unflatten(0, (n, -1)), lse), (0, None)
    return (out.unflatten(0, (n, -1)), lse.unflatten(0, (n, -1))), (0, 0)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RNN, GRU and LSTM of ONNX, step by step.

What the steps read of the sequence is one product for all of them. (torch-mlir's own form takes a
loop, of a batch that only a call knows an extent of -1.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from neptune_mlir.errors import InputError

ACTIVATIONS = {
    "RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"],
}  # fmt: skip
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_KNOWN = {"Sigmoid", "Tanh", "Relu", "Softplus", "Softsign", "Elu", "HardSigmoid"}
_OTHER = ("activation_alpha", "activation_beta", "clip", "input_forget")
MOST = 256  # steps that are written out where torch-mlir makes no loop of them
FEW = 16  # and where it does: each takes up to a second of compilation
_LOOPS = {"Tanh", "Sigmoid", "Relu"}  # activations of its loops
_SPELLED = {"Hardsigmoid": "HardSigmoid", "Leakyrelu": "LeakyRelu"}


def written_out(
    w: Any, kind: str, inputs: Sequence[str], a: Mapping[str, Any]
) -> Sequence[str] | None:
    """The results of a node. None for sequences of an unknown length, and for other cells.

    A sequence that ends earlier than others keeps its state behind its end, where results are 0:
    backwards it has the first state until there.

    Args:
        w: what writes nodes (`nodes._Nodes`).
        inputs: names, "" for those left out.
        a: attributes.
    """
    x, weights, recurrent, bias, lengths, hidden, cell, peepholes = inputs
    known = all(name in w.types and len(w.shape(name)) == 3 for name in (x, weights, recurrent))
    names = [n.decode().capitalize() for n in a.get("activations", ())]
    names = [_SPELLED.get(n, n) for n in names]
    odd = any(a.get(name) for name in _OTHER) or not set(names) <= _LOOPS
    if not known or any(a.get(name) for name in _OTHER):
        _refuse_left(w, kind, lengths, odd)
        return None
    flip = [1, 0, 2] if a.get("layout") else [0, 1, 2]
    steps, size = w.shape(x)[flip[0]], w.shape(recurrent)[2]
    ways = {b"forward": [1], b"reverse": [-1], b"bidirectional": [1, -1]}
    turns = ways[a.get("direction", b"forward")]
    names = names or ACTIVATIONS[kind] * len(turns)
    plain = not lengths and not peepholes and not flip[0] and None not in w.shape(x)
    if steps and steps > FEW and plain and (steps > MOST or set(names) <= _LOOPS):
        given = x, weights, recurrent, bias, hidden, cell
        return None if turns == [1] else _one_way(w, kind, given, turns, names, a)
    if not size or not steps or steps > MOST or not set(names) <= _KNOWN:
        _refuse_left(w, kind, lengths, odd)
        return None
    if flip[0]:
        x, hidden, cell = (n and w.op("Transpose", n, perm=flip) for n in (x, hidden, cell))
    if lengths:
        lengths = w.op("Unsqueeze", w.op("Cast", lengths, to=TensorProto.INT64), w.constant([1]))
    found = []
    for k, turn in enumerate(turns):
        own = [
            name and w.op("Gather", name, w.constant(k), axis=0)
            for name in (weights, recurrent, bias, hidden, cell, peepholes)
        ]
        count = len(ACTIVATIONS[kind])
        layer = _Layer(w, kind, size, names[k * count : (k + 1) * count], own[:3], own[5], lengths)
        layer.like = weights
        found.append(layer.run(x, own[3], own[4], range(steps)[::turn], a))
    results = [w.op("Concat", *(each[n] for each in found), axis=1 if n == 0 else 0)
               for n in range(len(found[0]))]  # fmt: skip
    if flip[0]:
        perms = [[2, 0, 1, 3], flip, flip]
        results = [w.op("Transpose", n, perm=p) for n, p in zip(results, perms, strict=False)]
    return results


def _one_way(
    w: Any, kind: str, given: Sequence[str], turns: Sequence[int], names: Sequence[str],
    a: Mapping[str, Any],
) -> Sequence[str]:  # fmt: skip
    """A layer as nodes that go from the first element on, of which torch-mlir makes loops."""
    x, *held = given
    back = [w.constant([n]) for n in (-1, -(2**62), 0, -1)]
    count, found = len(ACTIVATIONS[kind]), []
    for k, turn in enumerate(turns):
        own = [name and w.op("Gather", name, w.constant([k]), axis=0) for name in held]
        sequence = x if turn == 1 else w.op("Slice", x, *back)
        inputs = [sequence, *own[:3], "", *own[3 : 3 + (kind == "LSTM") + 1]]
        made = [f"{w.place}:{kind}{k}.{n}" for n in range(3 if kind == "LSTM" else 2)]
        options = {n: a[n] for n in ("hidden_size", "linear_before_reset") if n in a}
        options["activations"] = names[k * count : (k + 1) * count]
        w.nodes.append(helper.make_node(kind, inputs, made, w.place, **options))
        found.append([made[0] if turn == 1 else w.op("Slice", made[0], *back), *made[1:]])
    return [w.op("Concat", *(each[n] for each in found), axis=1 if n == 0 else 0)
            for n in range(len(found[0]))]  # fmt: skip


def _refuse_left(w: Any, kind: str, lengths: str, odd: bool) -> None:
    """Raises InputError where a node would be left to torch-mlir, which looks neither at lengths
    nor at other cells: it gives another result."""
    if lengths or odd:
        what = "sequences that end before others" if lengths else "other activations"
        raise InputError(
            f"'{kind}' of {what} is written out for at most {MOST} steps of a known number, "
            f"activations without parameters ({', '.join(sorted(_KNOWN))}) and no clip",
            loc=w.place,
        )


class _Layer:
    """One direction: a cell, and what it is made of without the axis of directions."""

    def __init__(
        self, w: Any, kind: str, size: int, activations: Sequence[str], held: Sequence[str],
        peepholes: str, lengths: str,
    ):  # fmt: skip
        self.like = ""  # a value of the type of all
        self.lengths = lengths  # as a column, "" where all sequences are as long
        self.w, self.kind, self.size, self.activations = w, kind, size, activations
        weights, recurrent, bias = held
        self.weights, self.recurrent = (
            w.op("Transpose", name, perm=[1, 0]) for name in (weights, recurrent)
        )
        both = _GATES[kind] * size
        self.bias = [w.part(bias, 0, both), w.part(bias, both, 2 * both)] if bias else ["", ""]
        self.peepholes = [self.gate(peepholes, n) for n in range(3)] if peepholes else None

    def gate(self, name: str, first: int, stop: int = 0) -> str:
        """Some gates of a value, from number `first` on."""
        return str(self.w.part(name, first * self.size, (stop or first + 1) * self.size))

    def run(
        self, x: str, hidden: str, cell: str, order: Sequence[int], a: Mapping[str, Any]
    ) -> list[str]:
        """All hidden states, with an axis of directions, and the last state."""
        w = self.w
        late = self.kind == "GRU" and bool(a.get("linear_before_reset"))
        given = self._plus(w.op("MatMul", x, self.weights), self.bias[0])
        if self.bias[1] and not late:
            given = w.op("Add", given, self.bias[1])
        found: dict[int, str] = {}
        for step in order:
            here = w.op("Gather", given, w.constant(step), axis=0)
            before = hidden, cell
            if self.kind == "GRU":
                hidden = self._gru(here, hidden, late)
            elif self.kind == "LSTM":
                hidden, cell = self._lstm(here, hidden, cell)
            else:
                hidden = self._act(0, self._plus(here, self._product(hidden)))
            made = hidden
            if self.lengths:
                lasts = w.op("Less", w.constant(step), self.lengths)
                zero = w.number(0, self.like)
                made = w.op("Where", lasts, hidden, zero)
                hidden, cell = (
                    new and w.op("Where", lasts, new, old or zero)
                    for new, old in zip((hidden, cell), before, strict=True)
                )
            found[step] = self._wrapped(made, 0, 1)
        last = [hidden, cell] if self.kind == "LSTM" else [hidden]
        whole = w.op("Concat", *(found[step] for step in sorted(found)), axis=0)
        return [whole, *(self._wrapped(name, 0) for name in last)]

    def _lstm(self, here: str, hidden: str, cell: str) -> tuple[str, str]:
        w, before = self.w, cell
        both = self._plus(here, self._product(hidden))
        i, o, f, c = (self.gate(both, n) for n in range(4))
        if self.peepholes and before:
            i, f = (w.op("Add", gate, w.op("Mul", self.peepholes[n], before))
                    for gate, n in ((i, 0), (f, 2)))  # fmt: skip
        cell = w.op("Mul", self._act(0, i), self._act(1, c))
        if before:
            cell = w.op("Add", w.op("Mul", self._act(0, f), before), cell)
        if self.peepholes:
            o = w.op("Add", o, w.op("Mul", self.peepholes[1], cell))
        return w.op("Mul", self._act(0, o), self._act(2, cell)), cell

    def _gru(self, here: str, hidden: str, late: bool) -> str:
        w = self.w
        recurrent = self._plus(self._product(hidden), self.bias[1]) if late else ""
        if not late and hidden:
            recurrent = w.op("MatMul", hidden, self.gate(self.recurrent, 0, 2))
        gates = self.gate(here, 0, 2)
        if recurrent:
            gates = w.op("Add", gates, self.gate(recurrent, 0, 2) if late else recurrent)
        gates = self._act(0, gates)
        z, r, new = self.gate(gates, 0), self.gate(gates, 1), self.gate(here, 2)
        if late and recurrent:
            new = w.op("Add", new, w.op("Mul", r, self.gate(recurrent, 2)))
        elif hidden:
            kept = w.op("Mul", r, hidden)
            new = w.op("Add", new, w.op("MatMul", kept, self.gate(self.recurrent, 2)))
        new = self._act(1, new)
        made = w.op("Sub", new, w.op("Mul", z, new))
        return str(w.op("Add", made, w.op("Mul", z, hidden)) if hidden else made)

    def _product(self, hidden: str) -> str:
        return str(self.w.op("MatMul", hidden, self.recurrent)) if hidden else ""

    def _plus(self, left: str, right: str) -> str:
        """A sum of what there is."""
        return str(self.w.op("Add", left, right)) if left and right else left or right

    def _act(self, number: int, name: str) -> str:
        if self.activations[number] == "Softsign":  # which torch-mlir has not
            one = self.w.number(1.0, self.like)
            over = self.w.op("Add", self.w.op("Abs", name), one)
            return str(self.w.op("Div", name, over))
        return str(self.w.op(self.activations[number], name))

    def _wrapped(self, name: str, *axes: int) -> str:
        """With axes of 1 at these places."""
        return str(self.w.op("Unsqueeze", name, self.w.constant(np.array(axes))))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of random programs that only move elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from support.view_writer import RANK, TYPES, Tensor, Writer, tensor_type


class Moves(Writer):
    """A step returns False where it does not suit the tensor at hand."""

    def partner(self, t: Tensor) -> Tensor:
        """A tensor of the shape of t: one there is, or a view of an argument."""
        same = [m for m in self.made if m.shape == t.shape and m is not t]
        if same and self.rng.random() < 0.5:
            return self.rng.choice(same)
        kind = self.rng.choice(["plain", "transposed", "collapsed", "expanded"])
        if kind == "transposed" and t.rank:
            order = self.shuffled(t.rank)
            inverse = [order.index(k) for k in range(t.rank)]
            held = self.argument([t.shape[k] for k in order], [t.known[k] for k in order])
            return self.transposed(held, inverse)
        pairs = [k for k in range(t.rank - 1) if t.known[k] and t.known[k + 1]]
        if kind == "expanded" and pairs:
            k = self.rng.choice(pairs)
            shape = (*t.shape[:k], t.shape[k] * t.shape[k + 1], *t.shape[k + 2 :])
            held = self.argument(shape, (*t.known[:k], True, *t.known[k + 2 :]))
            groups = (
                [[d] for d in range(k)] + [[k, k + 1]] + [[d + 1] for d in range(k + 1, t.rank - 1)]
            )
            return self.expanded(held, groups, t.shape, self.known_extents(held, groups, t.shape))
        cuts = [k for k in range(t.rank) if t.known[k] and t.shape[k] > 1]
        if kind == "collapsed" and cuts:
            k = self.rng.choice(cuts)
            a = self.rng.choice([f for f in range(1, t.shape[k] + 1) if t.shape[k] % f == 0])
            shape = (*t.shape[:k], a, t.shape[k] // a, *t.shape[k + 1 :])
            held = self.argument(shape, (*t.known[:k], True, *t.known[k:]))
            return self.collapsed(held, [[d] if d < k else [k, k + 1] if d == k else [d + 1]
                                         for d in range(t.rank)])  # fmt: skip
        return self.argument(t.shape)

    def known_extents(self, held: Tensor, groups: Any, shape: Any) -> list[str | None]:
        found: list[str | None] = []
        for k, group in enumerate(groups):
            found += [None] * len(group) if held.known[k] else [self.dim(held, k)]
        assert len(found) == len(shape)
        return found

    def expand(self) -> Any:
        t = self.current
        if t.rank >= RANK:
            return False
        if not t.rank:
            self.expanded(t, [], (1,), [None])
            return True
        k = self.rng.randrange(t.rank)
        n = t.shape[k]
        parts = [a for a in range(1, n + 1) if n % a == 0]
        a = self.rng.choice(parts)
        factors = [a, n // a]
        if self.rng.random() < 0.3 and t.rank + 2 <= RANK:
            factors.insert(self.rng.randrange(3), 1)
        sizes: list[str | None] = [None] * len(factors)
        if not t.known[k]:  # one of the factors is not known either
            unknown = self.rng.randrange(len(factors))
            rest = n // factors[unknown]
            extent = self.dim(t, k)
            if rest > 1:
                extent = self.emit(f"arith.divsi {extent}, {self.index(rest)} : index")
            sizes[unknown] = extent
        before, after = list(range(k)), list(range(k + 1, t.rank))
        more = len(factors) - 1
        groups = (
            [[d] for d in before] + [list(range(k, k + more + 1))] + [[d + more] for d in after]
        )
        others = self.extents(t)
        shape = (*t.shape[:k], *factors, *t.shape[k + 1 :])
        self.expanded(t, groups, shape, [*others[:k], *sizes, *others[k + 1 :]])

    def collapse(self) -> Any:
        t = self.current
        if t.rank < 2:
            return False
        first = self.rng.randrange(t.rank - 1)
        last = min(t.rank - 1, first + self.rng.choice([1, 1, 2]))
        groups = [[d] for d in range(first)] + [list(range(first, last + 1))]
        self.collapsed(t, groups + [[d] for d in range(last + 1, t.rank)])

    def transpose(self) -> Any:
        if self.current.rank < 2:
            return False
        self.transposed(self.current, self.shuffled(self.current.rank))

    def shuffle(self) -> Any:
        """A dimension cut in two or three, these in another order, and one again."""
        t = self.current
        cuts = [k for k, n in enumerate(t.shape) if n in (4, 6, 8, 9, 12)]
        if not cuts or t.rank > RANK - 2:
            return False
        k = self.rng.choice(cuts)
        n, factors = t.shape[k], []
        while len(factors) < self.rng.randint(1, 2) and n > 3:
            factors.append(self.rng.choice([a for a in range(2, n) if n % a == 0] or [n]))
            n //= factors[-1]
        factors.append(n)
        others, sizes = self.extents(t), [None] * len(factors)
        if not t.known[k]:
            rest = prod(factors) // factors[-1]
            sizes[-1] = self.emit(f"arith.divsi {others[k]}, {self.index(rest)} : index")
        more = len(factors) - 1
        group = list(range(k, k + len(factors)))
        groups = [[d] for d in range(k)] + [group] + [[d + more] for d in range(k + 1, t.rank)]
        shape = (*t.shape[:k], *factors, *t.shape[k + 1 :])
        cut = self.expanded(t, groups, shape, [*others[:k], *sizes, *others[k + 1 :]])
        order = list(range(cut.rank))
        if self.rng.random() < 0.8:
            order[k : k + len(factors)] = self.rng.sample(group, len(group))
        else:
            self.rng.shuffle(order)
        self.collapsed(self.transposed(cut, order), groups)

    def slice(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        parts, picks, known = [], [], []
        for k, n in enumerate(t.shape):
            kind = self.rng.choice(["whole", "whole", "part", "packed", "step", "one"])
            low, count, step = 0, n, 1
            if kind == "one":
                low, count = self.rng.randrange(n), 1
            elif kind == "part":
                low = self.rng.randrange(n)
                count = self.rng.randint(1, n - low)
            elif kind == "packed":
                count = self.rng.choice([a for a in range(1, n + 1) if n % a == 0])
                low = count * self.rng.randrange(n // count)
            elif kind == "step":
                step = self.rng.randint(1, 3)
                low = self.rng.randrange(min(n, step))
                count = (n - low + step - 1) // step
                step = step if count > 1 else 1  # upstream's subviews mix up dimensions else
            size = str(count)
            known.append(True)
            if not t.known[k] and (kind == "whole" or (kind == "part" and low + count == n)):
                size = self.dim(t, k)
                if low:
                    size = self.emit(f"arith.subi {size}, {self.index(low)} : index")
                known[-1] = False
            parts.append((str(low), size, str(step)))
            picks.append(slice(low, low + (count - 1) * step + 1, step))
        value = t.value[tuple(picks)]
        dropped = [k for k, n in enumerate(value.shape)
                   if n == 1 and known[k] and self.rng.random() < 0.4]  # fmt: skip
        shape = [n for k, n in enumerate(value.shape) if k not in dropped]
        known = [e for k, e in enumerate(known) if k not in dropped]
        kind = tensor_type(shape, known, self.dtype)
        lists = " ".join(f"[{', '.join(p)}]" for p in zip(*parts, strict=True))
        name = self.emit(f"tensor.extract_slice {t.name}{lists} : {t.type} to {kind}")
        self.add(name, value.reshape(shape), known)
        self.replace(self.current, known)

    def pad(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        low = [self.rng.choice([0, 0, 1, 2]) for _ in t.shape]
        high = [self.rng.choice([0, 0, 1, 3]) for _ in t.shape]
        fill = self.rng.choice([0.0, 0.5])
        value = np.pad(t.value, list(zip(low, high, strict=True)), constant_values=fill)
        if value.size > self.largest:
            return False
        constant = self.constant(fill)
        kind = tensor_type(value.shape, t.known, self.dtype)
        places = ", ".join(f"%p{k}: index" for k in range(t.rank))
        name = self.emit(
            f"tensor.pad {t.name} low{low} high{high} {{\n  ^bb0({places}):\n"
            f"    tensor.yield {constant} : {self.dtype}\n  }} : {t.type} to {kind}"
        )
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, t.known)

    def concat(self) -> Any:
        t = self.current
        if not t.rank or t.value.size * 3 > self.largest:
            return False
        k = self.rng.randrange(t.rank)
        others = [t]
        for _ in range(self.rng.choice([1, 1, 2])):
            kind = self.rng.choice(["same", "partner", "longer"])
            if kind == "same":
                others.append(t)
            elif kind == "partner":
                others.append(self.partner(t))
            else:
                shape = [n if d != k else self.rng.randint(1, 3) for d, n in enumerate(t.shape)]
                others.append(self.argument(shape))
        self.rng.shuffle(others)
        known = [all(o.known[d] for o in others) if d == k else any(o.known[d] for o in others)
                 for d in range(t.rank)]  # fmt: skip
        value = np.concatenate([o.value for o in others], k)
        if value.size > self.largest:
            return False
        kind = tensor_type(value.shape, known, self.dtype)
        names, types = ", ".join(o.name for o in others), ", ".join(o.type for o in others)
        name = self.emit(f"tensor.concat dim({k}) {names} : ({types}) -> {kind}")
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, known)

    def insert(self) -> Any:
        """This tensor put into a larger one, at every position or at every other."""
        t = self.current
        if not t.rank:
            return False
        low = [self.rng.choice([0, 0, 1, 2]) for _ in t.shape]
        steps = [self.rng.choice([1, 1, 2]) for _ in t.shape]
        more = [self.rng.choice([0, 0, 1]) for _ in t.shape]
        shape = [a + (n - 1) * s + 1 + b
                 for n, a, s, b in zip(t.shape, low, steps, more, strict=True)]  # fmt: skip
        if prod(shape) > self.largest:
            return False
        known = [True] * t.rank
        if self.rng.random() < 0.5:
            name, _ = self.filled(shape, [None] * t.rank, 0.5)
            held = Tensor(name, np.full(shape, 0.5, TYPES[self.dtype]), tuple(known), self.dtype)
        else:
            held = self.argument(shape)
        extents = self.extents(t)
        sizes = ", ".join(str(n) if e is None else e
                          for n, e in zip(t.shape, extents, strict=True))  # fmt: skip
        name = self.emit(
            f"tensor.insert_slice {t.name} into {held.name}{low} [{sizes}] {steps} : "
            f"{t.type} into {held.type}"
        )
        value = held.value.copy()
        picks = tuple(slice(a, a + (n - 1) * s + 1, s)
                      for n, a, s in zip(t.shape, low, steps, strict=True))  # fmt: skip
        value[picks] = t.value
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, held.known)

    def broadcast(self) -> Any:
        """A dimension more, along which nothing changes."""
        t = self.current
        n = self.rng.choice([1, 2, 3, 4])
        if t.rank >= RANK or t.value.size * n > self.largest:
            return False
        k = self.rng.randint(0, t.rank)
        size = None
        like = [(m, d) for m in self.made for d in range(m.rank) if not m.known[d]]
        if like and self.rng.random() < 0.5:
            other, d = self.rng.choice(like)
            if t.value.size * other.shape[d] <= self.largest:
                n, size = other.shape[d], self.dim(other, d)
        extents = self.extents(t)
        extents.insert(k, size)
        shape = [*t.shape[:k], n, *t.shape[k:]]
        empty, kind = self.empty(shape, extents)
        name = self.emit(
            f"linalg.broadcast ins({t.name} : {t.type}) outs({empty} : {kind}) dimensions = [{k}]"
        )
        value = np.broadcast_to(np.expand_dims(t.value, k), shape)
        self.add(name, value, extents)

    def gather(self) -> Any:
        """Rows picked by a tensor of positions."""
        t = self.current
        if not t.rank:
            return False
        m = self.rng.choice([1, 2, 4, t.shape[0], t.shape[0]])
        if t.value.size // t.shape[0] * m > self.largest:
            return False
        k = self.rng.randrange(t.rank) if self.rng.random() < 0.3 else 0
        if t.value.size // t.shape[k] * m > self.largest:
            return False
        at = self.data.integers(0, t.shape[k], m)
        rows = Tensor(self.name(), at, (self.rng.random() >= self.unknown,), "i64")
        self.inputs.append(rows)
        extents = self.extents(t)
        extents[k] = None if rows.known[0] else self.dim(rows, 0)
        shape = [*t.shape[:k], m, *t.shape[k + 1 :]]
        out = self.empty(shape, extents)
        body = ["%r = arith.index_cast %a : i64 to index"]
        body += [f"%j{d} = linalg.index {d} : index" for d in range(t.rank) if d != k]
        where = ", ".join("%r" if d == k else f"%j{d}" for d in range(t.rank))
        body += [f"%m = tensor.extract {t.name}[{where}] : {t.type}", "%m"]
        same = ", ".join(f"d{d}" for d in range(t.rank))
        made = self.generic(
            [f"d{k}", same], ["parallel"] * t.rank, [(rows.name, rows.type)], out, body, t.rank
        )
        self.add(made, np.take(t.value, at, k), extents)

    def cast(self) -> Any:
        """The type says more, or less, of the extents."""
        t = self.current
        if not t.rank or not self.unknown:
            return False
        known = [self.rng.random() < 0.5 for _ in t.shape]
        if known == list(t.known):
            return False
        kind = tensor_type(t.shape, known, self.dtype)
        name = self.emit(f"tensor.cast {t.name} : {t.type} to {kind}")
        self.add(name, t.value, [True] * t.rank)
        self.replace(self.current, known)

    def reshape(self) -> Any:
        """Any other shape of as many elements."""
        t = self.current
        if not all(t.known):
            return False
        left, shape = t.value.size, []
        while left > 1 and len(shape) < RANK - 1:
            shape.append(self.rng.choice([a for a in range(1, left + 1) if left % a == 0]))
            left //= shape[-1]
        shape.append(left)
        values = [self.index(n) for n in shape]
        made = f"tensor.from_elements {', '.join(values)} : tensor<{len(shape)}xindex>"
        kind = tensor_type(shape, [True] * len(shape), self.dtype)
        name = self.emit(
            f"tensor.reshape {t.name}({self.emit(made)}) : "
            f"({t.type}, tensor<{len(shape)}xindex>) -> {kind}"
        )
        self.add(name, t.value.reshape(shape), [True] * len(shape))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile programs of one program for some calls, of which a test asks for few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from neptune_mlir.pipelines.lowering import Lowering, RaisedProgram


class Variants(Mapping[str, Lowering]):
    """The tile program for any call, as "", and those for some, by their knobs. Each is lowered
    when it is asked for, and all of them (up to thirty) where somebody asks which there are."""

    def __init__(self, raised: RaisedProgram, base: Lowering, target: str):
        self._raised, self._base, self._target = raised, base, target
        self._made = {"": base}

    @cached_property
    def _all(self) -> dict[str, Lowering]:
        made = self._raised.variants(self._base, str(self._base.module), self._target)
        return {"": self._base, **{case.knob: variant for case, variant in made}}

    def __getitem__(self, knob: str) -> Lowering:
        if knob not in self._made:
            found = None
            for case in self._raised.cases(self._base):
                if case.knob == knob:  # of several the last one
                    found = next(self._raised.variant(self._base, self._target, case), found)
            if found is None:
                raise KeyError(knob)
            self._made[knob] = found
        return self._made[knob]

    def __contains__(self, knob: object) -> bool:
        return knob in self._all  # (a case whose program another one has is none)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

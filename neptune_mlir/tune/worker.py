# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that holds a candidate on the GPU; the requests are those of `bench/worker.py`.

The operators of the benchmark are measured as there. Of any other program

    {"do": "prepare", "program": {"fixed", "length", "stored"}, "bundle": PATH}
                                                        -> {"errors": {...}, "sample": [...]}

checks the small calls in `stored` against what the unfused program gave (`builder.py`), then makes
up arguments for the length. `sample` is some elements of the results, for a comparison with other
candidates; errors after the timing are against that same sample.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from neptune_mlir.bench import figures
from neptune_mlir.bench.process import serve
from neptune_mlir.bench.worker import Session, answering
from neptune_mlir.tune.arguments import Arguments

SAMPLED = 1024


class ProgramSession(Session):
    """One that also knows programs which are no operators of the benchmark."""

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        if "program" not in message:
            self.program = None
            return super().prepare(message)
        import torch

        self.clear()
        torch.cuda.empty_cache()
        self.program = message["program"]
        run = self.executable(message["bundle"])
        error = self._stored_error(run, Path(self.program["stored"]))
        arguments = Arguments(run.plan, self.program["fixed"], self.program["length"])
        results, prepared = _prepared(run, arguments.on_gpu())

        def call() -> Any:
            prepared()
            return results

        self.calls[self.named(message)] = call
        self.sampled = _sample(call())
        return {"errors": {"relative": error}, "sample": self.sampled.tolist()}

    def finish(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.program is None:
            return super().finish(message)
        again = _sample(self.timed[self.named(message)].poisoned())
        self.clear()
        return {"errors": figures.errors(again, self.sampled)}

    def _stored_error(self, run: Any, path: Path) -> float:
        """The largest relative error of a result of the stored calls."""
        import torch

        worst = 0.0
        with np.load(path) as stored:
            for k in range(int(stored["calls"])):
                own = {n.partition(":")[2]: stored[n] for n in stored if n.startswith(f"{k}:")}
                given = [_from_host(own[f"arg{n}"], a) for n, a in enumerate(run.plan.arguments)]
                results, prepared = _prepared(run, given)
                prepared()
                torch.cuda.synchronize()
                for n, result in enumerate(results):
                    wanted = own[f"out{n}"]
                    got = result.double().cpu().numpy()
                    defined = ~np.isnan(wanted)  # 0/0 unfused
                    found = figures.errors(got[defined], wanted[defined])["relative"]
                    worst = worst if found < worst else found
        return worst


class _Results(list[Any]):
    """Tensors that `bench.timing` poisons as one."""

    def fill_(self, value: float) -> None:
        for tensor in self:
            tensor.fill_(value if tensor.is_floating_point() else -1)


def _prepared(run: Any, arguments: list[Any]) -> tuple[_Results, Any]:
    """Poisoned results, and a call that fills them."""
    import torch

    needed = run.requirements(*arguments)
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
             "f64": torch.float64, "i1": torch.bool, "i8": torch.int8, "i32": torch.int32,
             "i64": torch.int64, "index": torch.int64}  # fmt: skip
    results = _Results(
        torch.empty(shape, dtype=kinds[dtype], device="cuda") for shape, dtype in needed.results
    )
    results.fill_(float("nan"))
    scratch = torch.empty(needed.workspace, dtype=torch.uint8, device="cuda")
    return results, run.prepare(*arguments, out=list(results), workspace=scratch)


def _from_host(value: Any, argument: Any) -> Any:
    import torch

    from neptune_mlir.runtime.libraries import tensor_over

    if argument.kind == "scalar":
        return value.item()
    made = tensor_over(np.ascontiguousarray(value), argument.dtype)
    return made.to(torch.device("cuda"))


def _sample(results: list[Any]) -> Any:
    """Some elements of each result, the same for results of the same shape, in float64."""
    import torch

    torch.cuda.synchronize()
    random = np.random.default_rng(0)
    found = []
    for tensor in results:
        places = random.integers(0, max(1, tensor.numel()), min(SAMPLED, tensor.numel()))
        flat = tensor.flatten()[torch.from_numpy(places).to(tensor.device)]
        found.append(flat.double().cpu().numpy())
    return np.concatenate(found) if found else np.zeros(0)


if __name__ == "__main__":
    sys.exit(serve(answering(ProgramSession(sys.argv[1]))))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes of a torch.distributed group on this machine, with gloo, for tests."""

import datetime
import multiprocessing
import traceback

import torch
import torch.distributed as dist

from neptune_mlir.torch.distributed import kernels


def interpreted(program, target, on_demand=False):
    """A kernel that evaluates the definition in float64, in place of a compiled one."""
    assert target == "cpu"

    def numpy(x):
        if not isinstance(x, torch.Tensor):
            return x
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()

    def kernel(*arguments, out):
        made = program.reference(*map(numpy, arguments))
        for x, to in zip(made if isinstance(made, tuple) else (made,), out, strict=True):
            to.copy_(torch.tensor(x))

    return kernel


def _work(rank, size, port, timeout, compiled, work, results):
    torch.set_num_threads(1)
    if not compiled:
        kernels.compile = interpreted
    store = dist.TCPStore("127.0.0.1", port, size + 1, is_master=False)
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    for name, do in work:
        try:
            results.put((rank, name, do(dist.group.WORLD)))
        except Exception:
            results.put((rank, name, traceback.format_exc()))
    results.put((rank, None, None))
    results.close()
    results.join_thread()


def run(size, work, timeout=60, compiled=False):
    """What each function of `work`, (name, function of a group), gives in each process: a dict of
    lists by rank. A traceback where it raised, None where the process was gone before."""
    store = dist.TCPStore("127.0.0.1", 0, size + 1, is_master=True, wait_for_workers=False)
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    arguments = (size, store.port, timeout, compiled, work, results)
    processes = [fork.Process(target=_work, args=(r, *arguments)) for r in range(size)]
    for p in processes:
        p.start()
    found = {name: [None] * size for name, _ in work}
    left = set(range(size))
    while left:
        try:
            rank, name, value = results.get(timeout=2)
        except Exception:  # the queue is empty: is anybody there?
            left = {r for r in left if processes[r].is_alive()}
            continue
        if name is None:
            left.discard(rank)
        else:
            found[name][rank] = value
    for p in processes:
        p.join(10)
        assert p.exitcode is not None, "a process hangs"
    return found

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The threads that run kernels: native helpers that wait for work without Python's lock.

A launch gives helpers its task and takes part in it; programs are taken from a counter, so any
number of workers is right. Who launched waits only for helpers that have begun: a short launch is
over before a helper wakes up. A launch that finds the helpers busy with another runs alone.

Where torch has brought an OpenMP runtime, its threads are taken instead (`Team`). They wait in a
loop for some time after each of torch's operations, and would keep helpers of ours off the CPUs.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.loader import compile_text

_local = threading.local()
_lock = threading.Lock()
PAGE = 4096  # bytes; scratch memory has whole ones


def _choose_variable() -> Callable[[bytes], bytes | None]:
    """How a variable of the environment is read in each call: by C, which Python's `os.environ`
    writes through to. (Asking that for what it has not raises an exception, and takes four times
    as long.)"""
    if os.name != "posix":
        return lambda name: os.environ.get(name.decode(), "").encode() or None
    read = ctypes.PyDLL(None).getenv
    read.argtypes, read.restype = (ctypes.c_char_p,), ctypes.c_char_p
    found: Callable[[bytes], bytes | None] = read
    return found


_variable = _choose_variable()


def count() -> int:
    """How many threads to use: NEPTUNE_NUM_THREADS, else the CPUs this process may run on."""
    given = _variable(b"NEPTUNE_NUM_THREADS")
    if given is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    chosen = given.decode(errors="replace")
    if not chosen.isdigit() or int(chosen) < 1:
        raise UsageError(f"NEPTUNE_NUM_THREADS is '{chosen}', not a positive number")
    return int(chosen)


def scratch(size: int) -> int:
    """The address of this thread's scratch memory: at least `size` bytes, aligned to a page."""
    held: tuple[int, int, Any] | None = getattr(_local, "scratch", None)
    if held is None or held[1] < size:
        raw = np.zeros(size + PAGE, np.uint8)
        start = raw.__array_interface__["data"][0]
        held = _local.scratch = (start + -start % PAGE, size, raw)
    return held[0]


class Helpers:
    """Threads that help with launches. `state` and `share` are what a native entry takes."""

    def __init__(self) -> None:
        setup, self._help, self.share = _functions()
        # not Python's to free: helpers wait on it until the process ends
        malloc = ctypes.CDLL(None).malloc
        malloc.restype = ctypes.c_void_p
        self.state: int = malloc(ctypes.c_size_t(_STATE_BYTES))
        setup(self.state)
        self._threads = 0

    def ready(self, workers: int, size: int) -> int:
        """Start threads until `workers` can work, the caller among them. The address of the
        caller's scratch memory, of `size` bytes (whole pages)."""
        if self._threads < workers - 1:
            self._start(workers - 1)
        return scratch(size)

    def _start(self, wanted: int) -> None:
        with _lock:
            while self._threads < wanted:
                self._threads += 1
                name = f"neptune_{self._threads}"
                threading.Thread(
                    target=self._help, args=(self.state,), name=name, daemon=True
                ).start()


class Team:
    """The threads of the OpenMP runtime that the process has. `state` and `share` as of `Helpers`.

    A launch is a parallel region of the whole team, as torch's are: a runtime ends threads that a
    smaller team leaves out. So there are never more workers than OpenMP has threads
    (`torch.set_num_threads`), and in a parallel region there is one.

    Args:
        parallel, number: the addresses of GOMP_parallel and omp_get_thread_num.
    """

    state = 0

    def __init__(self, parallel: int, number: int):
        text = _TEAM_TEXT.replace("@parallel", f"inttoptr (i64 {parallel} to ptr)")
        text = text.replace("@number", f"inttoptr (i64 {number} to ptr)")
        engine, (self.share,) = compile_text(text, ["share"])
        _alive.append(engine)

    def ready(self, workers: int, size: int) -> int:
        """The address of scratch memory for `workers`, of `size` bytes (whole pages) each."""
        return scratch(workers * size)


def helpers() -> Helpers | Team:
    """Those of this process."""
    if "torch" in sys.modules and not _forked:
        team = _team()
        if team is not None:
            return team
    return _own()


@functools.cache
def _own() -> Helpers:
    return Helpers()


@functools.cache
def _team() -> Team | None:
    """torch makes its OpenMP runtime's functions visible to the whole process, if it has one."""
    everywhere = ctypes.CDLL(None)
    try:
        functions = everywhere.GOMP_parallel, everywhere.omp_get_thread_num
    except AttributeError:
        return None
    return Team(*(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions))


_forked = False


def _after_fork() -> None:
    """Threads do not survive a fork: the child makes its own. An OpenMP runtime makes none, and its
    next parallel region would wait for ever."""
    global _forked
    _forked = True
    _own.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _functions() -> tuple[Any, Any, int]:
    """Makes a state; a helper's loop, which never returns; the address of `share`."""
    engine, (setup, loop, share) = compile_text(_TEXT, ["setup", "help", "share"])
    _alive.append(engine)
    make = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return make(setup), make(loop), share


_alive: list[Any] = []

# The state: 0 lock, 1 work has come, 2 a helper is done, 3 the lock of who launches (128 bytes
# each, more than any libc's); then as words: 64 task, 65 record, 66 counter, 67 bytes of scratch,
# 68 helpers wanted, 69 helpers at work.
_STATE_BYTES = 8 * 70
_FIELDS = {
    "lock": 0, "come": 16, "done": 32, "turn": 48, "task": 64, "record": 65, "counter": 66,
    "size": 67, "wanted": 68, "working": 69,
}  # fmt: skip
_ADDRESSES = "\n".join(
    f"  %{name} = getelementptr i64, ptr %state, i64 {at}" for name, at in _FIELDS.items()
)
_TEXT = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_trylock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

define void @setup(ptr %state) {{
{_ADDRESSES}
  call i32 @pthread_mutex_init(ptr %lock, ptr null)
  call i32 @pthread_cond_init(ptr %come, ptr null)
  call i32 @pthread_cond_init(ptr %done, ptr null)
  call i32 @pthread_mutex_init(ptr %turn, ptr null)
  store i64 0, ptr %wanted
  store i64 0, ptr %working
  ret void
}}

define void @help(ptr %state) {{
{_ADDRESSES}
  call i32 @pthread_mutex_lock(ptr %lock)
  br label %look
look:
  %memory = phi ptr [ null, %0 ], [ %memory, %wait ], [ %own, %next ]
  %held = phi i64 [ 0, %0 ], [ %held, %wait ], [ %bytes, %next ]
  %left = load i64, ptr %wanted
  %none = icmp eq i64 %left, 0
  br i1 %none, label %wait, label %take
wait:
  call i32 @pthread_cond_wait(ptr %come, ptr %lock)
  br label %look
take:
  %fewer = sub i64 %left, 1
  store i64 %fewer, ptr %wanted
  %busy = load i64, ptr %working
  %busier = add i64 %busy, 1
  store i64 %busier, ptr %working
  %t = load ptr, ptr %task
  %r = load ptr, ptr %record
  %c = load ptr, ptr %counter
  %needed = load i64, ptr %size
  call i32 @pthread_mutex_unlock(ptr %lock)
  %small = icmp ult i64 %held, %needed
  br i1 %small, label %grow, label %work
grow:
  call void @free(ptr %memory)
  %more = add i64 %needed, 4095
  %pages = and i64 %more, -4096
  %grown = call ptr @aligned_alloc(i64 4096, i64 %pages)
  br label %work
work:
  %own = phi ptr [ %memory, %take ], [ %grown, %grow ]
  %bytes = phi i64 [ %held, %take ], [ %pages, %grow ]
  call void %t(ptr %r, ptr %c, ptr %own, i64 %bytes)
  call i32 @pthread_mutex_lock(ptr %lock)
  %still = load i64, ptr %working
  %fewer.busy = sub i64 %still, 1
  store i64 %fewer.busy, ptr %working
  %last = icmp eq i64 %fewer.busy, 0
  br i1 %last, label %tell, label %next
tell:
  call i32 @pthread_cond_signal(ptr %done)
  br label %next
next:
  br label %look
}}

define void @share(ptr %state, ptr %t, ptr %r, ptr %c, ptr %scratch, i64 %bytes, i64 %most) {{
{_ADDRESSES}
  %taken = call i32 @pthread_mutex_trylock(ptr %turn)
  %free = icmp eq i32 %taken, 0
  br i1 %free, label %give, label %alone
alone:
  call void %t(ptr %r, ptr %c, ptr %scratch, i64 %bytes)
  ret void
give:
  %others = sub i64 %most, 1
  call i32 @pthread_mutex_lock(ptr %lock)
  store ptr %t, ptr %task
  store ptr %r, ptr %record
  store ptr %c, ptr %counter
  store i64 %bytes, ptr %size
  store i64 %others, ptr %wanted
  call i32 @pthread_cond_broadcast(ptr %come)
  call i32 @pthread_mutex_unlock(ptr %lock)
  call void %t(ptr %r, ptr %c, ptr %scratch, i64 %bytes)
  call i32 @pthread_mutex_lock(ptr %lock)
  store i64 0, ptr %wanted
  br label %check
check:
  %busy = load i64, ptr %working
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %end, label %wait
wait:
  call i32 @pthread_cond_wait(ptr %done, ptr %lock)
  br label %check
end:
  call i32 @pthread_mutex_unlock(ptr %lock)
  call i32 @pthread_mutex_unlock(ptr %turn)
  ret void
}}
"""

# What a region is given: task, record, counter, scratch memory, its bytes for each, workers.
_TEAM_TEXT = """
%region = type { ptr, ptr, ptr, ptr, i64, i64 }

define internal void @work(ptr %at) {
  %region = load %region, ptr %at
  %most = extractvalue %region %region, 5
  %short = call i32 @number()
  %me = sext i32 %short to i64
  %wanted = icmp slt i64 %me, %most
  br i1 %wanted, label %take, label %end
take:
  %t = extractvalue %region %region, 0
  %r = extractvalue %region %region, 1
  %c = extractvalue %region %region, 2
  %scratch = extractvalue %region %region, 3
  %bytes = extractvalue %region %region, 4
  %before = mul i64 %me, %bytes
  %own = getelementptr i8, ptr %scratch, i64 %before
  call void %t(ptr %r, ptr %c, ptr %own, i64 %bytes)
  br label %end
end:
  ret void
}

define void @share(ptr %state, ptr %t, ptr %r, ptr %c, ptr %scratch, i64 %bytes, i64 %most) {
  %at = alloca %region
  %with0 = insertvalue %region poison, ptr %t, 0
  %with1 = insertvalue %region %with0, ptr %r, 1
  %with2 = insertvalue %region %with1, ptr %c, 2
  %with3 = insertvalue %region %with2, ptr %scratch, 3
  %with4 = insertvalue %region %with3, i64 %bytes, 4
  %with5 = insertvalue %region %with4, i64 %most, 5
  store %region %with5, ptr %at
  call void @parallel(ptr @work, ptr %at, i32 0, i32 0)
  ret void
}
"""

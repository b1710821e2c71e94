# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call of torch tensors like the one before it, as one native function.

What a tensor is (device, type, shape, strides, address) takes Python seven attributes, about a
microsecond. Tensor classes say it to C by DLPack's exchange interface: `dltensor_from_py_object`
fills in a `DLTensor` without a reference of its own. The function here asks it of all arrays of a
call, compares with what they were before, and enters the kernels (`NativeEntry`) without Python's
lock. Whatever differs is left to the ordinary way: another shape, a tensor that wants a gradient or
is negated lazily, arrays of `out=` that overlap with arguments.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.runtime import workers
from neptune_mlir.runtime.arrays import DLTensor, address_of, capsule_pointer
from neptune_mlir.runtime.loader import compile_text

_MOST = 64  # arrays of a call
_HEAD, _WORDS = 8, 5  # of a record, and of an array in it

# Records: how many arrays are compared, how many there are, the first of `out=`, how many
# addresses the entry takes, the entry, its template, workers, bytes of scratch memory. Then of each
# array the device, rank and type, where its shape (behind that, strides) stands, the first byte and
# that behind the last; then which array each address is of, and shapes and strides.
_TEXT = """
%tensor = type { i64, i64, i64, ptr, ptr, i64 }
%head = type [8 x i64]
%row = type [5 x i64]
%span = type { i64, i64 }

define internal %span @span(ptr %table, ptr %addresses, i64 %k) {
  %row.at = getelementptr %row, ptr %table, i64 %k
  %row = load %row, ptr %row.at
  %low = extractvalue %row %row, 3
  %high = extractvalue %row %row, 4
  %at = getelementptr i64, ptr %addresses, i64 %k
  %address = load i64, ptr %at
  %begin = add i64 %address, %low
  %end = add i64 %address, %high
  %half = insertvalue %span poison, i64 %begin, 0
  %both = insertvalue %span %half, i64 %end, 1
  ret %span %both
}

define i64 @again(ptr %arrays, ptr %record, ptr %state, ptr %share, ptr %scratch) {
entry:
  %found.at = alloca %tensor
  %args = alloca ptr
  %addresses = alloca [MOST x i64]
  %passed = alloca [MOST x i64]
  %head = load %head, ptr %record
  %compared = extractvalue %head %head, 0
  %all = extractvalue %head %head, 1
  %outs = extractvalue %head %head, 2
  %table = getelementptr %head, ptr %record, i64 1
  %many = call i64 @tuple_size(ptr %arrays)
  %as.many = icmp eq i64 %many, %all
  br i1 %as.many, label %look, label %other
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %seen ]
  %more = icmp ult i64 %k, %all
  br i1 %more, label %ask, label %apart
ask:
  %array = call ptr @tuple_item(ptr %arrays, i64 %k)
  %kind.at = getelementptr i8, ptr %array, i64 KIND
  %kind = load i64, ptr %kind.at
  %is.plain = icmp eq i64 %kind, TENSOR
  %is.parameter = icmp eq i64 %kind, PARAMETER
  %is.known = or i1 %is.plain, %is.parameter
  br i1 %is.known, label %read, label %other
read:
  %failed = call i32 @dltensor(ptr %array, ptr %found.at)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %place, label %raised
place:
  %found = load %tensor, ptr %found.at
  %data = extractvalue %tensor %found, 0
  %offset = extractvalue %tensor %found, 5
  %address = add i64 %data, %offset
  %address.at = getelementptr i64, ptr %addresses, i64 %k
  store i64 %address, ptr %address.at
  %is.compared = icmp ult i64 %k, %compared
  br i1 %is.compared, label %compare, label %seen
compare:
  %want.at = getelementptr %row, ptr %table, i64 %k
  %want = load %row, ptr %want.at
  %device = extractvalue %tensor %found, 1
  %want.device = extractvalue %row %want, 0
  %type = extractvalue %tensor %found, 2
  %want.type = extractvalue %row %want, 1
  %same.device = icmp eq i64 %device, %want.device
  %same.type = icmp eq i64 %type, %want.type
  %same = and i1 %same.device, %same.type
  br i1 %same, label %extents, label %other
extents:
  %rank = and i64 %type, 4294967295
  %shape = extractvalue %tensor %found, 3
  %strides = extractvalue %tensor %found, 4
  %want.shape = extractvalue %row %want, 2
  %extent.want = getelementptr i64, ptr %record, i64 %want.shape
  %stride.want = getelementptr i64, ptr %extent.want, i64 %rank
  %bytes.of = mul i64 %rank, 8
  %shapes = call i32 @compare(ptr %shape, ptr %extent.want, i64 %bytes.of)
  %steps = call i32 @compare(ptr %strides, ptr %stride.want, i64 %bytes.of)
  %differs = or i32 %shapes, %steps
  %alike = icmp eq i32 %differs, 0
  br i1 %alike, label %flags, label %other
flags:
  %grad = call ptr @get_attribute(ptr %array, ptr inttoptr (i64 REQUIRES_GRAD to ptr))
  %no.grad = icmp eq ptr %grad, inttoptr (i64 FALSE to ptr)
  br i1 %no.grad, label %negated, label %drop
negated:
  call void @drop(ptr %grad)
  store ptr %array, ptr %args
  %neg = call ptr @call_method(ptr inttoptr (i64 IS_NEG to ptr), ptr %args, i64 1, ptr null)
  %no.neg = icmp eq ptr %neg, inttoptr (i64 FALSE to ptr)
  br i1 %no.neg, label %plain, label %drop
plain:
  call void @drop(ptr %neg)
  br label %seen
seen:
  %k.next = add i64 %k, 1
  br label %look
drop:
  %answer = phi ptr [ %grad, %flags ], [ %neg, %negated ]
  call void @drop(ptr %answer)
  br label %raised
raised:
  call void @clear()
  br label %other
other:
  ret i64 1
apart:
  %o = phi i64 [ %outs, %look ], [ %o.next, %clear.of ]
  %o.more = icmp ult i64 %o, %compared
  br i1 %o.more, label %against, label %order
against:
  %j = phi i64 [ 0, %apart ], [ %j.next, %beside ]
  %j.more = icmp ult i64 %j, %o
  br i1 %j.more, label %pair, label %clear.of
pair:
  %o.span = call %span @span(ptr %table, ptr %addresses, i64 %o)
  %j.span = call %span @span(ptr %table, ptr %addresses, i64 %j)
  %o.begin = extractvalue %span %o.span, 0
  %o.end = extractvalue %span %o.span, 1
  %j.begin = extractvalue %span %j.span, 0
  %j.end = extractvalue %span %j.span, 1
  %j.before = icmp slt i64 %j.begin, %o.end
  %o.before = icmp slt i64 %o.begin, %j.end
  %meet = and i1 %j.before, %o.before
  br i1 %meet, label %other, label %beside
beside:
  %j.next = add i64 %j, 1
  br label %against
clear.of:
  %o.next = add i64 %o, 1
  br label %apart
order:
  %taken = extractvalue %head %head, 3
  %order.at = getelementptr %row, ptr %table, i64 %compared
  br label %pass
pass:
  %p = phi i64 [ 0, %order ], [ %p.next, %bind ]
  %p.more = icmp ult i64 %p, %taken
  br i1 %p.more, label %bind, label %run
bind:
  %which.at = getelementptr i64, ptr %order.at, i64 %p
  %which = load i64, ptr %which.at
  %from = getelementptr i64, ptr %addresses, i64 %which
  %value = load i64, ptr %from
  %to = getelementptr i64, ptr %passed, i64 %p
  store i64 %value, ptr %to
  %p.next = add i64 %p, 1
  br label %pass
run:
  %code.at = extractvalue %head %head, 4
  %code = inttoptr i64 %code.at to ptr
  %template = extractvalue %head %head, 5
  %workers = extractvalue %head %head, 6
  %bytes = extractvalue %head %head, 7
  %thread = call ptr @save_thread()
  call void %code(i64 %template, i64 %workers, ptr %state, ptr %share, ptr %scratch, i64 %bytes,
                  ptr %passed)
  call void @restore_thread(ptr %thread)
  ret i64 0
}
"""

# Functions of Python, and one of C, that the text calls
_CALLED = {
    "tuple_size": "PyTuple_Size", "tuple_item": "PyTuple_GetItem",
    "get_attribute": "PyObject_GetAttr", "call_method": "PyObject_VectorcallMethod",
    "drop": "Py_DecRef", "clear": "PyErr_Clear", "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread", "compare": "memcmp",
}  # fmt: skip
_NAMES = "requires_grad", "is_neg"  # interned for ever: the text has their addresses


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI: the version, the one before, and five functions."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("before", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p), ("managed_from", ctypes.c_void_p),
        ("managed_to", ctypes.c_void_p), ("dltensor_from", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )  # fmt: skip


@functools.cache
def _interface() -> tuple[Any, Any, Any] | None:
    """`again`, torch's function that fills in a `DLTensor`, and what keeps the code; None, where
    torch has none or this is no CPython whose objects say their type where that is expected."""
    torch = sys.modules["torch"]
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    place, probe = object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p), _NAMES[0]
    known = sys.implementation.name == "cpython" and capsule is not None
    if not known or ctypes.c_void_p.from_address(id(probe) + place).value != id(str):
        return None
    table = _Exchange.from_address(capsule_pointer(capsule, b"dlpack_exchange_api"))
    if table.major != 1 or not table.dltensor_from:
        return None
    text, functions = _TEXT, {"dltensor": table.dltensor_from}
    for name, symbol in _CALLED.items():
        functions[name] = ctypes.cast(getattr(ctypes.pythonapi, symbol), ctypes.c_void_p).value
    for name, address in functions.items():
        text = text.replace(f"@{name}(", f"inttoptr (i64 {address} to ptr)(")
    numbers = {
        "PARAMETER": id(torch.nn.Parameter), "TENSOR": id(torch.Tensor), "FALSE": id(False),
        "REQUIRES_GRAD": id(_NAMES[0]), "IS_NEG": id(_NAMES[1]), "KIND": place, "MOST": _MOST,
    }  # fmt: skip
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    engine, (address,) = compile_text(text, ["again"])
    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
    again = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, *[ctypes.c_int64] * 4)(address)
    return again, read(table.dltensor_from), engine


class TensorCall:
    """A call for torch tensors like some; None is returned where another way has to be taken.

    Args:
        interface: of `can_ask`.
        entry: `NativeEntry.at`, `template` its record.
        order: which array each address that the entry takes is of: arguments, then those of
            `out=`, then what `makers` make.
        spans: of arguments and `out=`: the first byte and that behind the last, from the address.
        results: which arrays are handed out.
    """

    def __init__(
        self, interface: Any, like: Sequence[Any], entry: int, template: int, order: Sequence[int],
        spans: Sequence[tuple[int, int]], makers: Sequence[Callable[[], Any]],
        results: Sequence[int], outs: int, count: int, most: int, scratch: int,
    ):  # fmt: skip
        self._again, read, _ = interface
        self._makers, self._outs = makers, outs
        self._results = operator.itemgetter(*results)  # one, or a tuple
        self._count, self._most, self._scratch = count, most, scratch
        table: list[int] = []
        extents: list[int] = []
        first = _HEAD + _WORDS * len(like) + len(order)
        for array, span in zip(like, spans, strict=True):
            seen = DLTensor()
            read(array, seen)
            words = (ctypes.c_int64 * 3).from_buffer(seen)  # the address, the device, what it is of
            table += [*words[1:], first + len(extents), *span]
            extents += [*seen.shape[: seen.ndim], *seen.strides[: seen.ndim]]
        head = [
            len(like), len(like) + len(makers), len(like) - outs, len(order), entry, template,
            count, scratch,
        ]  # fmt: skip
        self._record = np.array([*head, *table, *order, *extents], np.int64)
        self._at = address_of(self._record)

    def __call__(self, arguments: tuple[Any, ...], out: Any) -> Any:
        if workers.count() != self._count or (out is None) != (not self._outs):
            return None
        outs = () if out is None else out if type(out) in (tuple, list) else (out,)
        arrays = (*arguments, *outs, *[make() for make in self._makers])
        helpers = workers.helpers()
        memory = helpers.ready(self._most, self._scratch)
        if self._again(arrays, self._at, helpers.state, helpers.share, memory):
            return None
        return self._results(arrays)


def can_ask(arrays: Sequence[Any], made: int) -> Any:
    """What asks these arrays, if they are torch tensors, and few enough with as many as are `made`;
    else None."""
    torch = sys.modules.get("torch")
    if torch is None or not arrays or len(arrays) + made > _MOST:
        return None
    kinds = torch.Tensor, torch.nn.Parameter
    return _interface() if all(type(x) in kinds for x in arrays) else None

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names of the ops of the `neptune` dialect, for code that looks at ops of any kind."""

PREFIX = "neptune."

# nests, and what their regions hold
MAP = "neptune.map"
REDUCE = "neptune.reduce"
ACCUMULATE = "neptune.accumulate"
CORRECT = "neptune.correct"
READ = "neptune.read"
OLD = "neptune.old"
NEW = "neptune.new"
INDEX = "neptune.index"
YIELD = "neptune.yield"
MULTIPROCESSORS = "neptune.multiprocessors"

# fused ops
STREAM = "neptune.stream"
PRIVATE = "neptune.private"
GLOBAL = "neptune.global"
PRODUCE = "neptune.produce"

# tensors under another shape: no element moves
VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")

# tensors that tile programs see otherwise than they lie
PAGED = "neptune.paged"

# results that programs add to
ADD_SLICE = "neptune.add_slice"
AWAIT_SUMS = "neptune.await_sums"
TURN, COUNT = 3, 2  # operands of it that say when a program may add, and where it is counted
AWAITED = 2  # operands behind offsets: the last number of a word, and where words are

# asynchronous references
CREATE = "neptune.aref_create"
PRODUCER = "neptune.producer"
PUT = "neptune.aref_put"
GET = "neptune.aref_get"
RELEASE = "neptune.aref_release"

# asynchronous matmuls
START = "neptune.mma_start"
WAIT = "neptune.mma_wait"

# warps
WARP_ALL = "neptune.warp_all"
JOIN = "neptune.join_lanes"
FENCE = "neptune.issue_fence"
AWAIT_TURN = "neptune.await_turn"
GIVE_TURN = "neptune.give_turn"

NESTS = (MAP, REDUCE, ACCUMULATE, CORRECT)
READS = (READ, OLD, NEW)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The discardable attributes that passes of GPUs leave for each other and for code generators.

What `attributes` says of those of programs, fused ops and kernels holds of these: who writes and
who reads each stands here, and a test compares it with the code.
"""

from __future__ import annotations

from neptune_mlir.dialects.attribute_types import (
    MARK,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Attribute,
    Mark,
)

_HOLD, _LAZY = "transforms.hopper.hold_references", "transforms.hopper.lazy_rescaling"
_ONCE, _PIPELINE = "transforms.hopper.make_once", "transforms.hopper.pipeline_loops"

# ---- layouts of tiles

VIA = Attribute(
    "via", TEXT, "a tile op",
    'what runs it: "registers" (a thread its elements), "mma", or "loop" (a matmul by scalars)',
    writers=("transforms.gpu.assign_layouts", _HOLD, _LAZY),
    readers=(
        "codegen.gpu.rows.early_loads", "codegen.gpu.in_place", "codegen.gpu.kernels",
        "codegen.nvidia.rings", "codegen.nvidia.groups.consumers",
        "transforms.gpu.defer_joins", "transforms.gpu.keep_references", "transforms.gpu.streams",
        _HOLD, "transforms.hopper.specialize_warps",
    ),
)  # fmt: skip
ITERATION = Attribute(
    "iteration", TEXT, "a tile op",
    "which points of its loops each thread computes, as a layout",
    writers=("transforms.gpu.assign_layouts", _HOLD, _LAZY, _ONCE),
    readers=("analysis.layouts", "codegen.gpu.in_place", "transforms.gpu.defer_joins", _HOLD),
)  # fmt: skip
LAYOUT = Attribute(
    "layout", TEXT, "a tile op, a load or a copy",
    "where the elements of the result live (`analysis/layouts.py`)",
    writers=("transforms.gpu.assign_layouts", _HOLD, _LAZY, _ONCE),
    readers=(
        "analysis.layouts", "codegen.gpu.in_place", "codegen.gpu.kernels", "codegen.gpu.pipeline",
        "transforms.gpu.keep_references", "transforms.gpu.layout_stages", "transforms.gpu.streams",
        _HOLD, "transforms.hopper.interleave_factors", "transforms.hopper.loop_graph", _ONCE,
        "transforms.hopper.specialize_warps",
    ),
)  # fmt: skip
LAYOUTS = Attribute(
    "layout", TEXTS, "scf.for, scf.if",
    'the layout of each result; "" for a scalar',
    writers=("transforms.gpu.assign_layouts", "transforms.hopper.lazy_rescaling", _PIPELINE),
    readers=(
        "codegen.gpu.kernels", "transforms.gpu.defer_joins", "transforms.hopper.lazy_rescaling",
        "transforms.hopper.loop_graph", _PIPELINE,
    ),
)  # fmt: skip
INSTRUCTION = Attribute(
    "instruction", TEXT, "a matmul", "the matrix instruction",
    writers=("transforms.gpu.assign_layouts",), readers=("codegen.gpu.compute",),
)  # fmt: skip
SWAPPED = Mark(
    "swapped", MARK, "a matmul", "its factors change places: the result is computed transposed",
    writers=("transforms.gpu.layout_products",),
    readers=(
        "codegen.gpu.kernels", "codegen.nvidia.groups.exchange",
        "transforms.hopper.interleave_factors",
        "transforms.hopper.run_on_products", "transforms.hopper.specialize_warps",
    ),
)  # fmt: skip
PARTIAL = Mark(
    "partial", MARK, "a sum", "threads keep their parts; a neptune.join_lanes adds them up",
    writers=("transforms.gpu.defer_joins",), readers=("codegen.gpu.compute",),
)  # fmt: skip
INTERLEAVED = Mark(
    "interleaved", MARK, "tensor.parallel_insert_slice, a product",
    "columns of a tensor between them lie in memory as lanes have those of an accumulator",
    writers=("transforms.hopper.interleave_factors",),
    readers=("codegen.gpu.kernels", "codegen.nvidia.group_compute"),
)  # fmt: skip
STAGES = Attribute(
    "stages", NUMBER, "scf.for", "slots of the tiles that the loop loads to shared memory",
    writers=("transforms.gpu.assign_layouts",),
    readers=(
        "codegen.gpu.pipeline", "transforms.gpu.keep_references",
        "transforms.hopper.partition_warps",
    ),
)  # fmt: skip
ROUGH = Mark(
    "rough", MARK, "math.exp, math.tanh, arith.divf, arith.mulf",
    "few digits are enough: its result is rounded to 16 bits",
    writers=("transforms.gpu.tolerance",), readers=("analysis.body_forms", "codegen.gpu.scalars"),
)  # fmt: skip
PRECISE = Mark(
    "precise", MARK, "math.exp",
    "all digits are wanted, of a difference too: the program has no 16-bit floats",
    writers=("transforms.gpu.tolerance",), readers=("codegen.gpu.scalars",),
)  # fmt: skip
TRIED = Mark(
    "tried", MARK, "a tile op", "where one of its values is no number, its warp makes others",
    writers=("transforms.hopper.lazy_rescaling",), readers=("codegen.gpu.compute",),
)  # fmt: skip

# ---- running maxima that are kept

KEEPS = Mark(
    "keeps", MARK, "scf.for", "iterations may keep the reference of the one before",
    writers=("transforms.gpu.keep_references",),
    readers=("codegen.gpu.kernels", _HOLD, "transforms.hopper.lazy_rescaling"),
)  # fmt: skip
MEASURED = Attribute(
    "measured", TEXT, "weights and factors of an online softmax",
    'how references are looked for: "rows" or "warp", perhaps "once", "small" or "back"',
    writers=("transforms.gpu.keep_references", "transforms.hopper.lazy_rescaling", _PIPELINE),
    readers=(
        "codegen.gpu.kept", "codegen.gpu.kernels", "codegen.gpu.measured",
        "transforms.gpu.keep_references", "transforms.hopper.lazy_rescaling", _PIPELINE,
    ),
)  # fmt: skip
REFERENCES = Attribute(
    "references", NUMBERS, "weights and factors of an online softmax",
    "the operands that are references",
    writers=("transforms.gpu.keep_references",), readers=("codegen.gpu.measured", _PIPELINE),
)  # fmt: skip
AGAIN = Mark(
    "again", MARK, "a matmul", "warps may do it again, on their own",
    writers=("transforms.gpu.keep_references",),
    readers=(
        "codegen.nvidia.rings", "transforms.hopper.lazy_rescaling",
        "transforms.hopper.split_matmuls",
    ),
)  # fmt: skip
LIKELY = Mark(
    "likely", MARK, "scf.if", "most iterations take its first side",
    writers=("transforms.hopper.lazy_rescaling",), readers=("transforms.hopper.schedule_loops",),
)  # fmt: skip

# ---- warp specialisation and software pipelining

CONSUMERS = Attribute(
    "consumers", NUMBER, "scf.forall", "warp groups that compute, beside one that loads",
    writers=("transforms.hopper.specialize_warps",),
    readers=(
        "codegen.distribute_tiles", "codegen.gpu.host", "codegen.nvidia.groups.consumers",
        "transforms.gpu.assign_layouts", "transforms.gpu.keep_references",
        "transforms.gpu.layout_products", "transforms.gpu.layout_stages",
        "transforms.hopper.clusters", _HOLD, "transforms.hopper.interleave_factors", _LAZY, _ONCE,
        "transforms.hopper.partition_warps", "transforms.hopper.run_on_products",
        "transforms.hopper.schedule_loops", "transforms.hopper.specialize_warps",
        "transforms.hopper.split_matmuls", "transforms.hopper.sums_in_fragments", "tune.builder",
        "driver.recipe"),
)  # fmt: skip
UNSPECIALIZED = Mark(
    "unspecialized", MARK, "scf.forall", "it streams tiles for matmuls and got no consumers",
    writers=("transforms.hopper.specialize_warps",),
    readers=("transforms.hopper.specialize_warps",),
)  # fmt: skip
TURNS = Mark(
    "turns", MARK, "scf.forall", "consumers start their matmuls one after another (ping-pong)",
    writers=("transforms.hopper.specialize_warps",),
    readers=("codegen.nvidia.groups.idle", "codegen.nvidia.specialized", _PIPELINE),
)  # fmt: skip
RESIDENT = Mark(
    "resident", MARK, "scf.forall", "blocks stay and take programs from a queue (persistent)",
    writers=("transforms.hopper.specialize_warps",),
    readers=(
        "codegen.distribute_tiles", "codegen.nvidia.specialized", "transforms.hopper.clusters",
        "transforms.hopper.partition_warps",
    ),
)  # fmt: skip
BOXED = Mark(
    "boxed", MARK, "scf.forall", "results are stored by the copy engine (TMA)",
    writers=("transforms.hopper.specialize_warps",), readers=("codegen.nvidia.specialized",),
)  # fmt: skip
WHOLE = Mark(
    "whole", MARK, "neptune.add_slice",
    "its tile begins at a multiple of its rows, and the result has room for all of it",
    writers=("transforms.tiling.lower_to_tiles",), readers=("transforms.hopper.sums_in_fragments",),
)  # fmt: skip
IN_FRAGMENTS = Attribute(
    "in_fragments", NUMBERS, "scf.forall",
    "results that lie in memory as registers hold accumulators, by number",
    writers=("transforms.hopper.sums_in_fragments",),
    readers=("analysis.fragments", "codegen.nvidia.adder", "transforms.gpu.layout_stages"),
)  # fmt: skip
STAGE = Attribute(
    "stage", NUMBER, "an op of a pipelined loop", "how many iterations late it runs",
    writers=("transforms.hopper.schedule_loops",),
    readers=(_PIPELINE, "transforms.hopper.schedule_loops", "transforms.hopper.tile_readers"),
)  # fmt: skip
ORDER = Attribute(
    "order", NUMBER, "an op of a pipelined loop", "its place in the steady state",
    writers=("transforms.hopper.schedule_loops", "transforms.hopper.tile_readers"),
    readers=(_PIPELINE, "transforms.hopper.schedule_loops", "transforms.hopper.tile_readers"),
)  # fmt: skip
READER = Attribute(
    "reader", NUMBER, "neptune.aref_get",
    "which reader of its ring it is, where one is an iteration behind another",
    writers=("transforms.hopper.tile_readers",),
    readers=(
        "codegen.nvidia.rings", "transforms.hopper.run_on_products",
        "transforms.hopper.schedule_loops", "transforms.hopper.tile_readers",
    ),
)  # fmt: skip
HANDED = Mark(
    "handed", MARK, "linalg.copy", "the first group of warps made the tile for all of them",
    writers=("transforms.gpu.assign_layouts", _ONCE),
    readers=(
        "codegen.nvidia.groups.exchange", "codegen.nvidia.groups.hands",
        "codegen.nvidia.groups.consumers", _ONCE, "transforms.hopper.schedule_loops",
    ),
)  # fmt: skip
ONCE = Mark(
    "once", MARK, "a tile op, a get, a release, a store",
    "the first group of warps does it alone, for all of them",
    writers=(_ONCE,), readers=("codegen.nvidia.groups.hands", "codegen.nvidia.rings", _ONCE),
)  # fmt: skip
RUNS_ON = Mark(
    "runs_on", MARK, "scf.for", "its products run on into the next iteration, and wait there",
    writers=("transforms.hopper.run_on_products",),
    readers=("codegen.nvidia.groups.consumers", "transforms.hopper.schedule_loops"),
)  # fmt: skip
AHEAD = Attribute(
    "ahead", NUMBER, "neptune.mma_start", "how many eighths of its instructions stand there: the "
    "others stand between the elements of what follows, or behind stores of what groups exchange "
    "before the next one (8: all do)",
    writers=(_PIPELINE,), readers=("codegen.nvidia.groups.consumers",),
)  # fmt: skip
SKIPS_ONES = Mark(
    "skips_ones", MARK, "a tile op that scales", "it may be skipped where all factors are 1",
    writers=(_HOLD, _PIPELINE), readers=("codegen.nvidia.groups.consumers",),
)  # fmt: skip

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The discardable attributes `neptune.*` that passes leave for each other.

No other module writes such a name. An attribute is read and written through its declaration, which
knows its type:

    CONSUMERS.set(forall, 2)
    if CONSUMERS.on(forall): groups = CONSUMERS.of(forall)

`writers` and `readers` are the modules that do so, without the package's name; a test compares them
with the code. The attributes of ops of the dialect (`domain`, `combiner`, ...) are no concern of
this module: their classes have them.
"""

from __future__ import annotations

from neptune_mlir.dialects.attribute_types import (
    DATA,
    ELEMENT,
    LISTS,
    MARK,
    NUMBER,
    NUMBERS,
    TABLE,
    TEXT,
    TEXTS,
    Attribute,
    Mark,
)

# ---- programs

PRECISION = Attribute(
    "precision", TEXT, "func.func", "what the operands of products may be rounded to",
    writers=("driver.compiler",), readers=("dialects.program",),
)  # fmt: skip
NUMERICS = Attribute(
    "numerics", TEXT, "func.func", "which fused forms are good enough (`algebra/rules.py`)",
    writers=("driver.compiler",), readers=("dialects.program",),
)  # fmt: skip
DERIVED = Attribute(
    "derived", TEXTS, "func.func", "how the function was derived from another one",
    writers=("frontend.emit",), readers=("driver.explain", "driver.page.proofs"),
)  # fmt: skip
CHIP = Attribute(
    "chip", TEXT, "builtin.module", "the target that the program is compiled for",
    writers=("pipelines.lowering",), readers=(
        "analysis.paged_reads", "transforms.fusion.inline_maps", "transforms.fusion.privatize",
        "transforms.gpu.longest_first", "transforms.schedule.cut_rows",
        "transforms.schedule.product_axes", "transforms.tiling.lower_to_tiles",
        "transforms.tiling.in_turns", "transforms.tiling.skip_dead_tiles",
        "transforms.tiling.widen_factors"),
)  # fmt: skip
BUFFER = Attribute(
    "buffer", TEXT, "a result of a func.func",
    "the buffer of the torch program that the result is the new value of",
    writers=("frontend.from_torch",), readers=(),
)  # fmt: skip
UNSIGNED = Attribute(
    "unsigned", NUMBERS, "func.func", "results that are unsigned: types of linalg do not say it",
    writers=("driver.foreign", "frontend.from_torch"), readers=("transforms.tiling.host_plan",),
)  # fmt: skip
IN_TWO = Attribute(
    "in_two", LISTS, "func.func",
    "arguments that calls may give as two arrays, one behind the other: argument, dimension",
    writers=("frontend.emit",),
    readers=("codegen.nvidia.in_two", "pipelines.lowering", "transforms.tiling.lower_to_tiles"),
)  # fmt: skip
MEETS = Attribute(
    "meets", NUMBERS, "func.func",
    "arguments to trade parts with another device by: memory here and there, which of two parts "
    "this device's are, milliseconds; then the parts, in pairs",
    writers=("frontend.emit",), readers=("codegen.gpu.meeting", "transforms.schedule.tile"),
)  # fmt: skip
FOLLOWED = Mark(
    "followed", MARK, "func.func",
    "a program behind it starts while it runs, and waits for it: its last kernel lets that start",
    writers=("frontend.emit",), readers=("codegen.distribute_tiles",),
)  # fmt: skip
CONSTANTS = Attribute(
    "constants", TEXTS, "func.func",
    "SHA-256 of the data of each constant: they are the last arguments",
    writers=("transforms.linalg.lift_constants",),
    readers=("dialects.constants", "transforms.schedule.check_bounds"),
)  # fmt: skip
CONSTANT_DATA = Attribute(
    "constants", DATA, "builtin.module", "the data of constants by SHA-256, as bytes",
    writers=("transforms.linalg.lift_constants",), readers=("dialects.constants",),
)  # fmt: skip
STORED = Attribute(
    "stored", TEXTS, "func.func",
    "the element type of each argument and result that is held as bytes; \"\" for the others",
    writers=("transforms.tiling.float8_bits",), readers=("transforms.tiling.host_plan",),
)  # fmt: skip
BOUNDS = Attribute(
    "bounds", TEXTS, "func.func",
    "what each three results of a program that checks positions are of",
    writers=("transforms.schedule.check_bounds",), readers=("driver.bounds",),
)  # fmt: skip
EQUAL_DIMS = Attribute(
    "equal_dims", LISTS, "func.func",
    "dimensions of arguments that are equal: argument, dimension and factor of each",
    writers=("transforms.linalg.equal_extents",),
    readers=("transforms.hopper.tile_ends", "transforms.schedule.assume_chunks",
             "transforms.tiling.host_plan"),
)  # fmt: skip
MULTIPLES = Attribute(
    "multiples", LISTS, "func.func",
    "dimensions of arguments and what they are multiples of: argument, dimension, factor of each",
    writers=("transforms.schedule.assume_chunks",),
    readers=("analysis.tiles", "pipelines.lowering"),
)  # fmt: skip

# ---- nests and fused ops

AXES = Attribute(
    "axes", NUMBERS, "a nest in a fused op", "the axis of the fused op that each loop is",
    writers=("dialects.nests", "transforms.fusion.privatize", "transforms.schedule.split_streams"),
    readers=("dialects.nests", "dialects.verify", "transforms.fusion.lower_correct",
             "transforms.fusion.privatize", "transforms.schedule.split_streams"),
)  # fmt: skip
AXIS_NAMES = Attribute(
    "axis_names", TEXTS, "a nest", "what the program calls the loops",
    writers=("dialects.nests",), readers=("dialects.nests",),
)  # fmt: skip
_HOLD, _LAZY = "transforms.hopper.hold_references", "transforms.hopper.lazy_rescaling"
_ONCE, _PIPELINE = "transforms.hopper.make_once", "transforms.hopper.pipeline_loops"
_AXES = "transforms.fusion.axes"
_CHUNKS = f"{_AXES}.chunk_moments", f"{_AXES}.chunk_places"
FREE = Mark(
    "free", MARK, "neptune.accumulate, its tile op",
    "no result depends on its value: any reference will do",
    writers=("transforms.fusion.free_references", "transforms.tiling.emit"),
    readers=("transforms.gpu.keep_references", _HOLD, "transforms.tiling.emit"),
)  # fmt: skip
APART = Attribute(
    "apart", TEXT, "neptune.reduce",
    "why it is not fused with reductions that it reads, or that read it",
    writers=("dialects.program", "transforms.fusion.defer", *_CHUNKS, f"{_AXES}.split_sums"),
    readers=("dialects.program", *_CHUNKS, f"{_AXES}.chunks", "transforms.fusion.plan"),
)  # fmt: skip
SCALED = Mark(
    "scaled", MARK, "neptune.reduce", "its factor that sums of rows scale is stored ahead of it",
    ("transforms.scaled_factors",), ("transforms.fusion.factors_ahead", "transforms.fusion.defer"),
)  # fmt: skip
TESTED = Attribute(
    "tested", TEXTS, "func.func",
    "chains of which factors moved, by their content, and what the stress test said of them",
    writers=("transforms.fusion.defer",),
    readers=("transforms.fusion.plan", "transforms.fusion.rolling_update"),
)  # fmt: skip
PROOF = Attribute(
    "proof", TEXT, "neptune.stream", "how the corrections were proved",
    writers=("transforms.fusion.rolling_update",),
    readers=("driver.explain", "transforms.schedule.join_streams"),
)  # fmt: skip
DERIVATION = Attribute(
    "derivation", TEXTS, "neptune.stream", "the corrections and why they are right, for `explain`",
    writers=(
        "transforms.fusion.rolling_update", "transforms.schedule.join_streams",
        "transforms.schedule.split_streams",
    ),
    readers=(
        "driver.explain", "driver.page.proofs", "transforms.schedule.join_streams",
        "transforms.schedule.split_streams",
    ),
)  # fmt: skip
INNER = Attribute(
    "inner", TEXTS, "neptune.stream",
    "what the derivation calls each reduction that a tile computes by itself",
    writers=("transforms.fusion.rolling_update", "transforms.schedule.split_streams"),
    readers=("driver.page.proofs", "driver.page.provenance", "transforms.schedule.split_streams"),
)  # fmt: skip
RUNNING = Attribute(
    "running", TEXTS, "neptune.stream", "what the derivation calls each running value",
    writers=(
        "transforms.fusion.rolling_update", "transforms.schedule.join_streams",
        "transforms.schedule.split_streams",
    ),
    readers=(
        "driver.page.proofs", "driver.page.provenance", "transforms.schedule.join_streams",
        "transforms.schedule.split_streams",
    ),
)  # fmt: skip
TILE = Attribute(
    "tile", NUMBERS, "a fused op", "the tile size of each axis; 0: not cut",
    writers=(
        "transforms.schedule.like_tiles", "transforms.schedule.tile",
        "transforms.tiling.lower_to_tiles", "transforms.tiling.row_cuts",
        "transforms.tiling.skip_dead_tiles", "transforms.tiling.zeros",
    ),
    readers=(
        "analysis.tile_axes", "dialects.verify", "driver.explain", "driver.page.costs",
        "driver.page.tiles", "pipelines.cases", "pipelines.long_streams", "pipelines.paired",
        "pipelines.program_lengths", "pipelines.short_calls", "transforms.fusion.privatize",
        "transforms.schedule.cut_rows", "transforms.schedule.like_tiles",
        "transforms.schedule.tile", "transforms.tiling.lower_to_tiles",
    ),
)  # fmt: skip
TILE_FEW = Attribute(
    "tile_few", LISTS, "neptune.global",
    "tile sizes where a stream was cut into few chunks, the fewest first",
    writers=("transforms.schedule.tile",), readers=("transforms.tiling.lower_to_tiles",),
)  # fmt: skip
TUNED = Attribute(
    "tuned", TABLE, "a fused op, its scf.forall, its gpu.func",
    "what is done otherwise than by the rules: measured (`targets/tuned.py`), or asked for",
    writers=("analysis.tiles", "codegen.gpu.kernels", "transforms.tiling.lower_to_tiles"),
    readers=(
        "analysis.tiles", "codegen.gpu.kernels", "transforms.gpu.pace_products",
        "transforms.tiling.lower_to_tiles",
    ),
)  # fmt: skip
ONE_TILE = Mark(
    "one_tile", MARK, "neptune.stream, neptune.reduce",
    "a tile has all of the streamed axis in every call that the program is for",
    writers=("transforms.schedule.like_tiles", "transforms.schedule.stream_tiles",
             "transforms.tiling.lower_to_tiles"),
    readers=("transforms.schedule.like_tiles", "transforms.tiling.kernel"),
)  # fmt: skip
SHORTER = Attribute(
    "shorter", NUMBERS, "neptune.stream", "up to which lengths it has kernels of one tile beside",
    writers=("transforms.schedule.stream_tiles",), readers=("transforms.tiling.lower_to_tiles",),
)  # fmt: skip
LONGER = Attribute(
    "longer", NUMBERS, "neptune.stream", "lengths from which on other tile sizes are better",
    writers=("transforms.schedule.stream_tiles",), readers=("pipelines.long_streams",),
)  # fmt: skip
LONGER_FEW = Attribute(
    "longer_few", NUMBERS, "neptune.stream",
    "from which length on other sizes are better for few rows, and up to how many a multiprocessor",
    writers=("transforms.schedule.stream_tiles",), readers=("pipelines.long_streams",),
)  # fmt: skip
ALIGNABLE = Mark(
    "alignable", MARK, "neptune.stream",
    "the copy engine could bring tiles of tensors whose rows only a call knows, were they aligned",
    writers=("transforms.schedule.stream_tiles",), readers=("pipelines.cases",),
)  # fmt: skip
FEW_ROWS = Attribute(
    "few_rows", NUMBERS, "neptune.stream",
    "rows of a tile, of a stream in chunks, that are better where a call has few",
    writers=("transforms.schedule.tile",), readers=("pipelines.cases",),
)  # fmt: skip
PRODUCT = Attribute("product", NUMBERS, "neptune.stream",
    "a product that is cut along its sum: rows, columns, sum; 1: rows are computed",
    writers=("transforms.schedule.product_axes",),
    readers=("pipelines.product_cases", "transforms.schedule.set_choices",
             "transforms.tiling.kernel"),
)  # fmt: skip
CUT_ROWS = Attribute(
    "cut_rows", NUMBERS, "neptune.stream",
    "an axis, and the argument whose elements say where tiles of it begin",
    writers=("transforms.schedule.cut_rows",), readers=("transforms.tiling.lower_to_tiles",),
)  # fmt: skip
IN_ORDER = Attribute(
    "in_order", NUMBER, "scf.forall",
    "programs along the dimensions of the grid from this one on add to the same results",
    writers=("transforms.tiling.lower_to_tiles",),
    readers=("transforms.cpu.outline_kernels", "transforms.tiling.sums_awaited"),
)  # fmt: skip
MERGED_ROWS = Attribute(
    "merged_rows", NUMBER, "func.func", "two axes are one of so many rows (0: only a call knows)",
    writers=("transforms.fusion.merge_rows",),
    readers=("pipelines.lowering", "transforms.fusion.reshaped_reads"),
)  # fmt: skip
SPREADS = Mark(
    "spreads", MARK, "func.func",
    "merged rows read a tensor that a kernel of its own makes of one that has one of their axes",
    writers=("transforms.fusion.merge_rows",), readers=("pipelines.lowering",),
)  # fmt: skip
COMBINE = Attribute(
    "combine", TEXT, "a reduction whose combiner is no named one",
    "a module with the function that combines two elements",
    writers=("transforms.tiling.emit",),
    readers=("codegen.triton.ttir_generic", "transforms.cpu.fuse_tiles"),
)  # fmt: skip
IDENTITY = Attribute(
    "identity", ELEMENT, "a reduction with `neptune.combine`", "the identity of that combiner",
    writers=("transforms.tiling.emit",), readers=("codegen.triton.ttir_generic",),
)  # fmt: skip

# ---- kernels

KERNEL = Attribute(
    "kernel", TEXT, "scf.forall", "the name of the kernel",
    writers=(
        "transforms.gpu.longest_first", "transforms.gpu.points_to_kernels",
        "transforms.hopper.positions_ahead", "transforms.tiling.extrema",
        "transforms.tiling.lower_to_tiles",
    ),
    readers=(
        "transforms.gpu.longest_first", "transforms.hopper.positions_ahead",
        "transforms.tiling.host_plan", "transforms.tiling.zeros",
    ),
)  # fmt: skip
OF_MASK = Mark(
    "of_mask", MARK, "scf.forall",
    "the kernel finds what a mask is made of, so that others skip tiles",
    writers=(
        "transforms.gpu.longest_first", "transforms.hopper.positions_ahead",
        "transforms.tiling.extrema", "transforms.tiling.lower_to_tiles",
    ),
    readers=(
        "transforms.gpu.longest_first", "transforms.hopper.positions_ahead",
        "transforms.tiling.host_plan", "transforms.tiling.merge_programs",
    ),
)  # fmt: skip
TARGET = Attribute(
    "target", TEXT, "scf.forall",
    "the GPU that the layouts are for",
    writers=(
        "transforms.gpu.assign_layouts", "transforms.gpu.longest_first",
        "transforms.gpu.points_to_kernels",
    ),
    readers=(
        "codegen.distribute_tiles", "transforms.hopper.partition_warps",
        "transforms.hopper.schedule_loops", "transforms.hopper.sums_in_fragments",
    ),
)  # fmt: skip
WARPS = Attribute(
    "warps", NUMBER, "scf.forall",
    "warps of a program; of a specialised one, those of its consumers",
    writers=(
        "transforms.gpu.assign_layouts", "transforms.gpu.longest_first",
        "transforms.gpu.points_to_kernels",
    ),
    readers=(
        "codegen.distribute_tiles", "codegen.gpu.kernels", "transforms.gpu.layout_stages",
        "transforms.hopper.partition_warps",
    ),
)  # fmt: skip
BLOCKS = Attribute(
    "blocks", NUMBER, "scf.forall",
    "how many programs a multiprocessor has to have room for",
    writers=("transforms.gpu.assign_layouts",), readers=("codegen.gpu.kernels",),
)  # fmt: skip
HELD = Attribute(
    "held", NUMBER, "scf.forall",
    "registers of a thread that accumulators take, at most",
    writers=("transforms.gpu.assign_layouts",), readers=("codegen.gpu.kernels",),
)  # fmt: skip
POINTS = Attribute(
    "points", NUMBER, "scf.forall",
    "threads of a block, of a kernel with one thread a point",
    writers=("transforms.gpu.longest_first", "transforms.gpu.points_to_kernels"),
    readers=(
        "analysis.tiles", "codegen.distribute_tiles", "codegen.gpu.host", "codegen.gpu.in_place",
    ),
)  # fmt: skip
PLAN = Attribute(
    "plan", TEXT, "builtin.module",
    "the launch plan, as JSON",
    writers=("codegen.cpu.vectorize_tiles", "codegen.gpu.host", "transforms.cpu.outline_kernels"),
    readers=("codegen.cpu.vectorize_tiles", "pipelines.cpu", "pipelines.gpu"),
)  # fmt: skip
KERNELS = Attribute(
    "kernels", TEXT, "builtin.module",
    "what the GPU back end knows of each kernel, as JSON",
    writers=("codegen.gpu.host",), readers=("codegen.gpu.host",),
)  # fmt: skip
SHARED_BYTES = Attribute(
    "shared", NUMBER, "gpu.func",
    "bytes of shared memory",
    writers=("codegen.gpu.kernels",), readers=(),
)  # fmt: skip
GRID_KERNEL = Mark(
    "grid_kernel", MARK, "func.func", "a kernel of the CPU that the plan launches",
    writers=("transforms.cpu.outline_kernels",), readers=("codegen.cpu.vectorize_tiles",),
)  # fmt: skip

# ---- layouts of tiles

VIA = Attribute(
    "via", TEXT, "a tile op",
    'what runs it: "registers" (a thread its elements), "mma", or "loop" (a matmul by scalars)',
    writers=("transforms.gpu.assign_layouts", _HOLD, _LAZY),
    readers=(
        "codegen.gpu.rows.early_loads", "codegen.gpu.in_place", "codegen.gpu.kernels",
        "codegen.nvidia.rings", "codegen.nvidia.specialized",
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
WIDENS = Attribute(
    "widens", TEXT, "linalg.generic", "the type in 8 bits whose numbers it converts, no more",
    writers=("transforms.tiling.widen_factors",), readers=(
        "codegen.gpu.compute", "transforms.gpu.keep_references", "transforms.gpu.layout_factors"),
)  # fmt: skip
LOOSE = Mark(
    "loose", MARK, "arith.truncf to 8 bits",
    "factors may wait behind it; what is too large becomes the largest number, not NaN",
    writers=("dialects.scalars",), readers=(
        "dialects.scalars", "transforms.tiling.float8_bits", "transforms.tiling.widen_factors"),
)  # fmt: skip
NARROWS = Attribute(
    "narrows", TEXT, "linalg.generic", "the type in 8 bits that it rounds floats to, no more",
    writers=("transforms.tiling.widen_factors",),
    readers=("codegen.gpu.compute", "transforms.gpu.keep_references"),
)  # fmt: skip
INTERLEAVED = Mark(
    "interleaved", MARK, "tensor.parallel_insert_slice, a product",
    "columns of a tensor between them lie in memory as lanes have those of an accumulator",
    writers=("transforms.hopper.interleave_factors",),
    readers=("codegen.gpu.kernels", "codegen.nvidia.group_compute"),
)  # fmt: skip

# ---- warp specialisation and software pipelining

CONSUMERS = Attribute(
    "consumers", NUMBER, "scf.forall", "warp groups that compute, beside one that loads",
    writers=("transforms.hopper.specialize_warps",),
    readers=(
        "codegen.distribute_tiles", "codegen.gpu.host", "codegen.nvidia.specialized",
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
    readers=("codegen.nvidia.specialized", _PIPELINE),
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
        "codegen.nvidia.specialized", _ONCE, "transforms.hopper.schedule_loops",
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
    readers=("codegen.nvidia.specialized", "transforms.hopper.schedule_loops"),
)  # fmt: skip
AHEAD = Attribute(
    "ahead", NUMBER, "neptune.mma_start", "how many eighths of its instructions stand there: the "
    "others stand between the elements of what follows, or behind stores of what groups exchange "
    "before the next one (8: all do)",
    writers=(_PIPELINE,), readers=("codegen.nvidia.specialized",),
)  # fmt: skip
SKIPS_ONES = Mark(
    "skips_ones", MARK, "a tile op that scales", "it may be skipped where all factors are 1",
    writers=(_HOLD, _PIPELINE), readers=("codegen.nvidia.specialized",),
)  # fmt: skip

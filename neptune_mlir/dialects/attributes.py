# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The discardable attributes `neptune.*` that passes leave for each other.

Only this module and `gpu_attributes` (what passes of GPUs leave) write such a name. An attribute is
read and written through its declaration, which knows its type:

    BLOCKS.set(forall, 2)
    if BLOCKS.on(forall): blocks = BLOCKS.of(forall)

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
    readers=("dialects.nests", "dialects.verify", "transforms.final_counts",
             "transforms.fusion.lower_correct", "transforms.fusion.privatize",
             "transforms.schedule.split_streams"),
)  # fmt: skip
AXIS_NAMES = Attribute(
    "axis_names", TEXTS, "a nest", "what the program calls the loops",
    writers=("dialects.nests",), readers=("dialects.nests",),
)  # fmt: skip
_AXES = "transforms.fusion.axes"
_CHUNKS = f"{_AXES}.chunk_moments", f"{_AXES}.chunk_places"
FREE = Mark(
    "free", MARK, "neptune.accumulate, its tile op",
    "no result depends on its value: any reference will do",
    writers=("transforms.fusion.free_references", "transforms.tiling.emit"),
    readers=(
        "transforms.gpu.keep_references", "transforms.hopper.hold_references",
        "transforms.tiling.emit",
    ),
)  # fmt: skip
APART = Attribute(
    "apart", TEXT, "neptune.reduce",
    "why it is not fused with reductions that it reads, or that read it",
    writers=("dialects.program", "transforms.fusion.defer", *_CHUNKS, f"{_AXES}.split_sums"),
    readers=("dialects.program", *_CHUNKS, f"{_AXES}.chunks", "transforms.fusion.plan"),
)  # fmt: skip
SCALED = Mark(
    "scaled", MARK, "neptune.reduce", "its factor that sums of rows scale is stored ahead of it",
    writers=("transforms.scaled_factors",),
    readers=("transforms.fusion.factors_ahead", "transforms.fusion.defer"),
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
    writers=("analysis.tiles", "codegen.gpu.frame", "transforms.tiling.lower_to_tiles"),
    readers=(
        "analysis.tiles", "codegen.gpu.frame", "transforms.gpu.pace_products",
        "transforms.tiling.lower_to_tiles",
    ),
)  # fmt: skip
ONE_TILE = Mark(
    "one_tile", MARK, "neptune.stream, neptune.reduce",
    "a tile has all of the streamed axis in every call that the program is for",
    writers=("transforms.schedule.like_tiles", "transforms.schedule.stream_tiles",
             "transforms.tiling.lower_to_tiles"),
    readers=("transforms.schedule.like_tiles", "transforms.schedule.tile",
             "transforms.tiling.kernel"),
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
PRODUCT = Attribute(
    "product", NUMBERS, "neptune.stream",
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
        "codegen.distribute_tiles", "codegen.gpu.frame", "transforms.gpu.layout_stages",
        "transforms.hopper.partition_warps",
    ),
)  # fmt: skip
BLOCKS = Attribute(
    "blocks", NUMBER, "scf.forall",
    "how many programs a multiprocessor has to have room for",
    writers=("transforms.gpu.assign_layouts",), readers=("codegen.gpu.frame",),
)  # fmt: skip
HELD = Attribute(
    "held", NUMBER, "scf.forall",
    "registers of a thread that accumulators take, at most",
    writers=("transforms.gpu.assign_layouts",), readers=("codegen.gpu.frame",),
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
    writers=("codegen.gpu.frame",), readers=(),
)  # fmt: skip
GRID_KERNEL = Mark(
    "grid_kernel", MARK, "func.func", "a kernel of the CPU that the plan launches",
    writers=("transforms.cpu.outline_kernels",), readers=("codegen.cpu.vectorize_tiles",),
)  # fmt: skip

# ---- numbers in 8 bits

WIDENS = Attribute(
    "widens", TEXT, "linalg.generic", "the type in 8 bits whose numbers it converts, no more",
    writers=("transforms.tiling.widen_factors",), readers=(
        "codegen.gpu.compute", "transforms.gpu.keep_references", "transforms.gpu.layout_factors"),
)  # fmt: skip
NARROWS = Attribute(
    "narrows", TEXT, "linalg.generic", "the type in 8 bits that it rounds floats to, no more",
    writers=("transforms.tiling.widen_factors",),
    readers=("codegen.gpu.compute", "transforms.gpu.keep_references"),
)  # fmt: skip
LOOSE = Mark(
    "loose", MARK, "arith.truncf to 8 bits",
    "factors may wait behind it; what is too large becomes the largest number, not NaN",
    writers=("dialects.scalars",), readers=(
        "dialects.scalars", "transforms.tiling.float8_bits", "transforms.tiling.widen_factors"),
)  # fmt: skip

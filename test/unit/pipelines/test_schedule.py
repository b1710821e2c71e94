# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules: knobs, errors, and the rule that chooses one."""

import pytest

from neptune_mlir.dialects.context import make_context, parse
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import InputError, NeptuneError, ScheduleError, UsageError
from neptune_mlir.frontend import notation as N
from neptune_mlir.pipelines import common, runner
from neptune_mlir.transforms.schedule import library, scripts

HEAD = "module attributes {transform.with_named_sequence} {\n"
ENTRY = "transform.named_sequence @__transform_main(%m: !transform.any_op {transform.consumed}) {\n"


def program(rows, length):
    dynamic = -(2**63)
    extents = [n for n in (rows, length) if n == "?"]
    names = ", ".join(f"%n{k}" for k in range(len(extents)))
    sizes = [dynamic if n == "?" else n for n in (rows, length)]
    kinds = ", ".join(["index"] * len(extents))
    tensor = f"tensor<{rows}x{length}xf32>"
    return f"""
    func.func @f(%x: {tensor}, %n0: index, %n1: index) -> tensor<{rows}xf32> {{
      %s = "neptune.reduce"({names}) ({{
        %a = "neptune.read"(%x) {{map = affine_map<(i, j) -> (i, j)>}}
            : ({tensor}) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }}, {{}}) {{combiner = "add", identity = 0.0 : f32, result_axes = array<i64: 0>,
               domain = array<i64: {sizes[0]}, {sizes[1]}>}} : ({kinds})
          -> tensor<{rows}xf32>
      return %s : tensor<{rows}xf32>
    }}"""


@pytest.mark.parametrize(
    ("rows", "length", "chosen"),
    [
        (64, 4096, "streamed"),  # enough rows
        (4, 4096, "private"),  # few rows, long stream
        (4, 512, "streamed"),  # few rows, but the stream is short
        (4, "?", "private"),  # a stream of run-time length counts as long
        ("?", 4096, "streamed"),  # a run-time number of rows counts as many
    ],
)
def test_rule(rows, length, chosen):
    module = parse(program(rows, length))
    assert scripts.choose(module, parallel_programs=16) == chosen


@pytest.mark.parametrize(("columns", "chosen"), [(4096, "private"), (8192, "streamed")])
def test_sums_over_rows_are_as_many_programs_as_they_have_tiles_of_columns(columns, chosen):
    p = N.Program("sums")
    i, j = p.axis("i", 5000), p.axis("j", columns)
    p.output(N.sum(p.input("x", i, j)[i, j], i), j)
    module = parse(p.to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, parallel_programs=32) == chosen


def test_shipped_schedules_parse_and_name_their_knobs():
    known = {}
    for name in library.shipped():
        context = make_context()
        known[name] = set(scripts.knobs(scripts.parse(library.read(name), context)))
    streamed = {
        "rows", "stream", "held", "shared", "least", "warp_groups", "few", "length", "words",
    }  # fmt: skip
    products = {"product_rows", "product_columns"}
    joined = {"joined", "ordered"}
    assert known["streamed"] == streamed | products | joined | {"products", "aligned", "most"}
    assert known["ahead"] == streamed | products
    assert known["apart"] == {"rows", "stream", "warp_groups", "tiles", "programs", "each"}
    assert known["private"] == {
        "rows", "stream", "product_stream", "least", "held", "chunks", "programs", "each",
        "columns", "warp_groups", "shared", "words",
    }  # fmt: skip
    assert known["unfused"] == {"shared"}


def test_knobs_are_bound_by_name():
    module = parse(program(4, 4096))
    scripts.apply(module, library.read("private"), {"chunks": 16, "stream": 32}, "private")
    text = str(module)
    assert "neptune.tile" in text
    assert "chunks = 16" in text  # a reduction that shares a loop with nothing is cut as well


@pytest.mark.parametrize(
    ("values", "message"),
    [({"speed": 11}, "no knob 'speed'"), ({"chunks": 3}, "knob 'chunks' cannot be 3")],
)
def test_bad_knobs(values, message):
    module = parse(program(4, 4096))
    with pytest.raises(ScheduleError, match=message):
        scripts.apply(module, library.read("private"), values, "private")


def test_unknown_schedule():
    with pytest.raises(UsageError, match="no schedule 'fastest'"):
        library.read("fastest")


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("module {", InputError, "expected"),
        ("module {}", InputError, "no transform.named_sequence"),
        (f"{HEAD}{ENTRY}"
         '%0 = transform.structured.match ops{["neptune.reduce"]} in %m '
         ": (!transform.any_op) -> !transform.any_op\n"
         '%1 = "transform.neptune.defer"(%0) : (!transform.any_op) -> !transform.any_op\n'
         "transform.yield } }", ScheduleError, "takes functions or the module"),
        (f"{HEAD}{ENTRY}"
         '%n = transform.param.constant "four" -> !transform.any_param\n'
         '%1 = "transform.neptune.privatize"(%m, %n) '
         ": (!transform.any_op, !transform.any_param) -> !transform.any_op\n"
         "transform.yield } }", ScheduleError, "chunks must be one whole number"),
        (f"{HEAD}{ENTRY}"
         "%n = transform.param.constant 4 : i64 -> !transform.param<i64>\n"
         '%1 = "transform.neptune.tile"(%m, %n) {axes = ["depth"]} '
         ": (!transform.any_op, !transform.param<i64>) -> !transform.any_op\n"
         "transform.yield } }", ScheduleError, "no axis plays the role 'depth'"),
    ],
)  # fmt: skip
def test_bad_scripts(script, kind, message):
    module = parse(program(4, 4096))
    with pytest.raises(NeptuneError, match=message) as caught:
        scripts.apply(module, script, {}, "s.mlir")
    assert isinstance(caught.value, kind)


@pytest.mark.parametrize(
    ("name", "knobs"), [("streamed", {"rows": 32}), ("private", {"chunks": 4, "rows": 8})]
)
def test_the_parts_of_a_script_make_the_whole(name, knobs):
    from neptune_mlir import ops

    script = library.read(name)
    whole, parts = (parse(ops.attention(head_dim=64).to_mlir()) for _ in range(2))
    for module in (whole, parts):
        runner.run(module, common.IMPORT)
    scripts.apply(whole, script, knobs, name)
    scripts.apply(parts, script, {}, name, "fixed")
    fixed = str(parts)
    assert "neptune.stream" in fixed and "neptune.tile" not in fixed
    scripts.apply(parts, script, knobs, name, "bound")
    assert str(parts) == str(whole) != fixed


@pytest.mark.parametrize(
    ("steps", "fixed"),
    [
        ('%a = "transform.neptune.defer"(%m) : (!transform.any_op) -> !transform.any_op\n'
         'transform.print %a : !transform.any_op\n'
         '%b = "transform.neptune.inline_maps"(%a) : (!transform.any_op) -> !transform.any_op\n',
         ["defer"]),  # what a script prints, it prints once
        ('%r = transform.structured.match ops{["neptune.reduce"]} in %m '
         ": (!transform.any_op) -> !transform.any_op\n"
         '%a = "transform.neptune.defer"(%m) : (!transform.any_op) -> !transform.any_op\n', []),
    ],
)  # fmt: skip
def test_what_a_script_has_in_common(steps, fixed):
    text = f"{HEAD}{ENTRY}{steps}transform.yield }} }}"
    names = {}
    for part in ("", "fixed", "bound"):
        script = scripts.parse(text, make_context())
        scripts.keep(script, part)
        body = script.body.operations[0].regions[0].blocks[0].operations
        names[part] = [op.operation.name for op in body][:-1]
    assert [n.removeprefix("transform_neptune.") for n in names["fixed"]] == fixed
    assert names["bound"] == names[""][len(fixed):]


def attention_schedule(**options):
    from neptune_mlir import ops

    module = parse(ops.attention(head_dim=64, **options).to_mlir())
    runner.run(module, common.IMPORT)
    return scripts.choose(module, parallel_programs=132, adapts=True)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"q_len": 1}, "private"),  # a batch of any size: each problem has one row
        ({"q_len": 1, "alibi": True, "causal": True, "group": 4}, "private"),
        ({}, "streamed"),  # any number of rows
        ({"q_len": 1, "heads": 256}, "streamed"),  # at least 256 programs
        ({"q_len": 512}, "streamed"),
    ],
)
def test_rule_for_chunks_that_adapt(options, chosen):
    assert attention_schedule(**options) == chosen


@pytest.mark.parametrize(("rows", "length"), [("?", 4096), (64, 4096)])
def test_rows_that_share_nothing_are_no_problems(rows, length):
    module = parse(program(rows, length))
    assert scripts.choose(module, 16, adapts=True) == "streamed"


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({"width": 1024, "classes": 32000}, "apart"),
        ({"width": 257, "classes": 32000}, "apart"),  # no room for its rows and two tiles
        ({"width": 256, "classes": 32000}, "streamed"),  # a program keeps its rows
        ({"width": 1024}, "apart"),  # in as many chunks as the device wants
    ],
)
def test_rule_for_deep_products(settings, chosen):
    from neptune_mlir import ops

    module = parse(ops.linear_cross_entropy(dtype="f16", **settings).to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, 132, apart=True) == chosen
    assert scripts.choose(module, 132) == "streamed"


@pytest.mark.parametrize("whole", [False, True])
def test_a_product_that_the_result_is_made_of_is_not_taken_apart(whole):
    """A softmax of what a linear layer makes: each product is needed again for the result, so it
    goes through memory, and the softmax is a kernel of rows."""
    p = N.Program("classes")
    i, j, k = p.axis("i", 1024), p.axis("j", 8192), p.axis("k", 2048)
    x, w = p.input("x", i, k, dtype="f32"), p.input("w", j, k, dtype="f32")
    s = N.sum(x[i, k] * w[j, k], k)
    m = N.max(s, j)
    total = N.sum(N.exp(s - m), j)
    p.output(*((N.exp(s - m) / total, i, j) if whole else (m + N.log(total), i)), dtype="f32")
    module = parse(p.to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, 132, apart=True) == ("streamed" if whole else "apart")
    fused, _ = compiler.lower_text(p.to_mlir(), "test", "sm_90a", None, "fused", "")
    assert str(fused).count('"neptune.read"(%arg1)') == 1  # one product reads the weights


@pytest.mark.parametrize(
    ("name", "dtype", "chosen"),
    [
        ("layer_norm_matmul", "f16", "ahead"),
        ("rms_norm_matmul", "bf16", "streamed"),  # its rows' factor waits behind the product
        ("rms_norm_matmul", "f16", "ahead"),  # without it, x * weight may leave the range
        ("absmax_matmul", "f16", "streamed"),  # x as it is has no digits to lose
        ("layer_norm", "f16", "streamed"),  # no product
    ],
)
def test_rule_for_factors_that_are_sums_of_what_is_reduced(name, dtype, chosen):
    from neptune_mlir import ops

    module = parse(getattr(ops, name)(dtype=dtype).to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, 132, ahead=True) == chosen
    assert scripts.choose(module, 132) == "streamed"


@pytest.mark.parametrize("rounds", [False, True])
def test_factors_that_scores_enter_are_not_computed_ahead(rounds):
    """A tile of scores is made where it is multiplied; only a mean has to be there first."""
    from neptune_mlir.frontend.notation import Program, cast, mean, sum

    for centred, chosen in ((False, "streamed"), (True, "ahead")):
        p = Program("scores")
        i, j, d, e = p.axis("i", None), p.axis("j", 512), p.axis("d", 64), p.axis("e", 64)
        q, k = p.input("q", i, d, dtype="f16"), p.input("k", j, d, dtype="f16")
        v, bias = p.input("v", j, e, dtype="f16"), p.input("bias", i, j)
        scores = sum(q[i, d] * k[j, d], d)
        b = bias[i, j]
        weights = b - mean(b, j) if centred else scores + b
        weights = cast(weights, "f16") * 1.0 if rounds else weights
        p.output(sum(weights * v[j, e], j), i, e)
        module = parse(p.to_mlir())
        runner.run(module, common.IMPORT)
        assert scripts.choose(module, 132, ahead=True) == chosen


def test_deep_products_that_make_large_results_stay_together():
    from neptune_mlir import ops

    program = ops.attention(head_dim=1024, heads=2, batch=1, kv_len=4096, dtype="f16")
    module = parse(program.to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, 132, apart=True) == "streamed"


def test_what_the_fixed_part_ran_is_not_run_again():
    """A lone sum behind the fixed part could be deferred and fused by a second run of the passes
    that `privatize` starts from: it would have no tile sizes."""

    p = N.Program("norm")
    i, j, e = p.axis("i"), p.axis("j"), p.axis("e", 3)
    at = {"x": (i, j), "u": (j,), "v": (j, e)}
    x, u, v = (N.cast(p.input(n, *a, dtype="f16")[a], "f32") for n, a in at.items())
    large = x * 1e20
    rate = N.rsqrt(N.sum(u * (large * large), j) / N.sum(u, j) + 0.0)
    p.output(N.sum(large * rate * u * v, j), i, e)
    module, facts = compiler.lower_text(Source.of(p).text, "norm", "sm_80", None, "tile")
    assert facts["kernels"] > 1 and "scf.forall" in str(module)


def test_small_sums_that_nothing_needs_have_no_say():
    """The gradient of a learned sink has a result a head, and is a sum over all rows."""
    from neptune_mlir import ops
    from neptune_mlir.frontend.gradient import grad

    module = parse(grad(ops.attention(head_dim=64, heads=16, sink=True)).to_mlir())
    runner.run(module, common.IMPORT)
    assert scripts.choose(module, parallel_programs=132, adapts=True) == "streamed"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs cut over devices: local program, parts and join give what the program gives, exactly."""

import random
from itertools import accumulate, pairwise

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.errors import FusionError, InputError, UsageError
from neptune_mlir.frontend.gradient import grad
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.frontend.notation import Program, exp, inf, log, max, mean, sum, where
from neptune_mlir.frontend.shard import apart, split, split_vjp
from neptune_mlir.frontend.shard.plan import plan_of
from neptune_mlir.runtime.shards import ShardLayout, ShardPlan
from neptune_mlir.runtime.shards import plan as plan_module
from neptune_mlir.runtime.shards.cost import Speed, predict
from neptune_mlir.runtime.shards.layout import Form, Masks
from neptune_mlir.runtime.shards.plan import FEW, ShardSchedule
from neptune_mlir.targets.links import Link


def results(program, arrays):
    made = program.reference(*arrays)
    return made if isinstance(made, tuple) else (made,)


def joined(made, arrays, pieces, axis):
    """The program over one axis in pieces, each on a device, and all parts joined."""
    found = []
    for start, end in pieces:
        own = [
            x[tuple(slice(start, end) if a == axis else slice(None) for a in made.axes_of(name))]
            if isinstance(x, np.ndarray) else x
            for name, x in zip(made.program.inputs, arrays, strict=True)
        ]  # fmt: skip
        positions = {"start": {axis: start}, "size": {axis: pieces[-1][1]}}
        numbers = [positions[p.kind].get(p.axis, 0) for p in made.positions]
        found.append(results(made.local, [*own, *numbers]))
    join = made.join(axis, len(pieces))
    given = slots(found)
    named = dict(zip(made.program.inputs, arrays, strict=True))
    return results(join, [*given, *(named[n] for n in plan_of(made).joins[axis].arguments)])


def slots(found):
    """The parts of several devices as a join takes them."""
    kinds = list(zip(*found, strict=True))
    return [np.stack(x) for x in kinds] if len(found) > FEW else [x for k in kinds for x in k]


def tensors(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in shapes]


OPTIONS = [
    {}, {"softcap": 5.0}, {"alibi": True, "causal": True}, {"causal": True, "window": 4},
    {"group": 2}, {"sink": True}, {"dtype": "bf16"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("pieces", [[(0, 4), (4, 9)], [(k, k + 1) for k in range(9)]], ids=len)
def test_attention_in_pieces_of_the_keys(options, pieces):
    program = ops.attention(head_dim=4, **options)
    heads = 2 * options.get("group", 1)
    arrays = tensors((1, heads, 9, 4), (1, 2, 9, 4), (1, 2, 9, 4))
    if "alibi" in options or "sink" in options:
        arrays += tensors((heads,))
    made = split(program, ["j"])
    got = joined(made, arrays, pieces, "j")
    np.testing.assert_allclose(got[0], program.reference(*arrays), atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_runs_begin_with_the_parts_of_those_before(options):
    """Of three pieces of the keys: parts, parts that take them along, results."""
    made = split(ops.attention(head_dim=4, **options), ["j"])
    heads = 2 * options.get("group", 1)
    arrays = tensors((1, heads, 9, 4), (1, 2, 9, 4), (1, 2, 9, 4))
    if "alibi" in options or "sink" in options:
        arrays += tensors((heads,))
    found = []
    for start, end, program in ((0, 4, made.local), (4, 5, made.carried("j", finish=False)),
                                (5, 9, made.carried("j", finish=True))):  # fmt: skip
        own = [arrays[0], *(x[:, :, start:end] for x in arrays[1:3]), *arrays[3:]]
        found = results(program, [*own, *_numbers(made, start, 9), *found])
    np.testing.assert_allclose(found[0], made.program.reference(*arrays), atol=1e-12)


def test_a_part_that_sees_nothing_counts_for_nothing():
    program = ops.attention(head_dim=4, causal=True, align="start")
    arrays = tensors((1, 1, 5, 4), (1, 1, 5, 4), (1, 1, 5, 4))
    got = joined(split(program, ["j"]), arrays, [(0, 2), (2, 4), (4, 5)], "j")
    np.testing.assert_allclose(got[0], program.reference(*arrays), atol=1e-12)


def test_what_travels_is_of_the_size_of_the_result():
    made = split(ops.attention(head_dim=4, causal=True), ["j"])
    assert [made.axes_of(p.name) for p in made.parts] == [("b", "h", "i"), ("b", "h", "i", "e")]
    assert made.partials["j"].total is not None
    assert all(o.status == "proved" for o in made.partials["j"].obligations)
    assert "is 1 in every part" in made.explain()


def test_a_maximum_that_is_a_result_travels_itself():
    p = Program("soft")
    i, j = p.axis("i"), p.axis("j")
    x = p.input("x", i, j)[i, j]
    m = max(x, j)
    p.output(m, i)
    p.output(sum(exp(x - m), j), i)
    made = split(p, ["j"])
    assert made.partials["j"].total is None
    (x,) = tensors((3, 7))
    for got, want in zip(joined(made, [x], [(0, 3), (3, 7)], "j"), p.reference(x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_a_variance_measured_from_a_mean():
    p = Program("variance")
    i, j = p.axis("i"), p.axis("j")
    x = p.input("x", i, j)[i, j]
    difference = x - mean(x, j)
    p.output(mean(difference * difference, j), i)
    made = split(p, ["j"])
    (x,) = tensors((3, 8))
    join = made.join("j", 2)
    parts = [results(made.local, [x[:, :3], *_numbers(made, 0, 8)]),
             results(made.local, [x[:, 3:], *_numbers(made, 3, 8)])]  # fmt: skip
    given = slots(parts)
    more = [dict(j_start=0, j_size=8)[n] if n != "x" else x for n in list(join.inputs)[len(given):]]
    np.testing.assert_allclose(results(join, [*given, *more])[0], x.var(1), atol=1e-12)


def _numbers(made, start, size):
    return [start if p.kind == "start" else size for p in made.positions]


def test_results_along_the_sharded_axis_stay_in_pieces():
    program = ops.softmax()
    axis = program.axis_list[-1].name
    made = split(program, [axis])
    plan = plan_of(made)
    assert plan.joins[axis].arguments and plan.joins[axis].results[0].axes[-1] == axis


def test_gradients_over_both_axes():
    program = ops.attention(head_dim=4, causal=True, align="start")
    forward, backward = split_vjp(program, ["i", "j"])
    assert forward.partials["j"].total and set(backward.partials) == {"i", "j"}
    q, k, v, d = tensors(*[(1, 2, 6, 4)] * 4)
    out, saved = results(vjp(program)[0], [q, k, v])
    got = results(vjp(program)[1], [q, k, v, out, saved, d])
    for a, b in zip(got, results(grad(program), [q, k, v, d]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_gradients_by_the_axis_that_they_are_summed_over():
    """Each program's parts stay, and it has the inputs that it needs."""
    program = ops.attention(head_dim=4, causal=True, align="start", sink=True)
    made = {s.axes: plan_of(s) for s in apart(split_vjp(program, ["i", "j"])[1])}
    assert set(made) == {("i", "j"), ("j", "i")}
    for axes, plan in made.items():
        assert set(plan.joins) == {axes[-1]} and plan.carries
    assert set(made["i", "j"].results) == {"d_q"}
    assert set(made["j", "i"].results) >= {"d_k", "d_v"}


def refused(build, axes):
    with pytest.raises((InputError, UsageError, FusionError)) as caught:
        plan_of(split(build(), axes))
    return str(caught.value)


def lookup():
    p = Program("lookup")
    i, j, r = p.axes("i j r")
    x, at = p.input("x", r, i), p.input("at", j, dtype="i32")
    p.output(sum(x[at[j], i], j), i)
    return p


def two_rounds():
    p = Program("rounds")
    i, j = p.axes("i j")
    x = p.input("x", i, j)[i, j]
    p.output(sum(exp(sum(x, j)), i) + 0.0)
    return p


def unsolvable():
    p = Program("unsolvable")
    i, j = p.axes("i j")
    x = p.input("x", i, j)[i, j]
    p.output(sum(log(1.0 + exp(x * max(x, j))), j), i)
    return p


def both():
    p = Program("both")
    i, j = p.axes("i j")
    x = p.input("x", i, j)[i, j]
    p.output(sum(x, j), i)
    return p


@pytest.mark.parametrize(
    "build, axes, said",
    [
        (ops.softmax, ["q"], "no axis 'q'"),
        (ops.softmax, [], "no axis is sharded"),
        (lambda: ops.attention(head_dim=4), ["i"], "reduces nothing over i"),
        (lookup, ["r"], "may lie on another device"),
        (two_rounds, ["i", "j"], "needs totals over"),
        (unsolvable, ["j"], "cannot be fused"),
        (both, ["i", "j"], "several sharded axes"),
    ],
)
def test_what_devices_cannot_do_is_refused(build, axes, said):
    assert said in refused(build, axes)


def test_a_plan_is_data():
    for made in split_vjp(ops.attention(head_dim=4, causal=True, group=2), ["i", "j"]):
        plan = plan_of(made)
        assert ShardPlan.from_json(plan.to_json()) == plan


def masks_like(plan, i, j, sizes):
    """Whether a query at i sees a key at j."""
    return all(
        f.constant + f.starts.get("i", 0) * i + f.starts.get("j", 0) * j
        + f.sizes.get("i", 0) * sizes["i"] + f.sizes.get("j", 0) * sizes["j"] >= 0
        for f in plan.masks.forms
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"causal": True, "window": 5}, {"causal": True, "alibi": True}, {}],
    ids=str,
)  # fmt: skip
def test_runs_cover_each_point_once(options):
    """Of random pieces on random devices: every pair that counts is in one run, where its distance
    is the true one, or at least is seen as it is; parts of two runs never share a slot."""
    plan = plan_of(split(ops.attention(head_dim=4, **options), ["i", "j"]))
    rng = random.Random(3)
    for trial in range(12):
        size, devices = 16, rng.choice([1, 2, 3])
        zigzag = ShardLayout.zigzag(size, devices)
        layout = {"i": zigzag, "j": zigzag}
        if trial % 2:
            cuts = [0, *sorted(rng.sample(range(1, size), 5)), size]
            pieces = list(pairwise(cuts))
            rng.shuffle(pieces)
            layout = {a: ShardLayout(tuple(tuple(pieces[r::devices]) for r in range(devices)))
                      for a in "ij"}  # fmt: skip
        _check_cover(plan, ShardSchedule(plan, layout), layout, size)


def _check_cover(plan, schedule, layout, size):
    sizes = {"i": size, "j": size}
    for rank in range(schedule.devices):
        rows, seen_of = _positions(layout["i"].pieces[rank]), []
        for owner in schedule.owners(rank):
            columns = _positions(layout["j"].pieces[owner])
            count = np.zeros((len(rows), len(columns)), int)
            for run in schedule.runs(rank, owner):
                (a, b), (c, d) = run.call.spans["i"], run.call.spans["j"]
                for x in range(a, b):
                    for y in range(c, d):
                        told = run.call.starts["i"] + x - a, run.call.starts["j"] + y - c
                        seen = masks_like(plan, *told, sizes)
                        assert seen == masks_like(plan, rows[x], columns[y], sizes)
                        if seen and not plan.masks.movable:
                            assert told[0] - told[1] == rows[x] - columns[y]
                        count[x, y] += seen
            want = [[masks_like(plan, x, y, sizes) for y in columns] for x in rows]
            seen_of.append(np.array(want, int).reshape(count.shape))
            np.testing.assert_array_equal(count, seen_of[-1])
        slots = np.zeros((64, len(rows)), int)
        for owner in schedule.owners(rank):
            for run in schedule.runs(rank, owner):
                slots[run.slots["j"], slice(*run.call.spans["i"])] += 1
        assert slots.max(initial=0) <= 1
        spans = [s.span for s in schedule.stretches("j", rank)]
        assert [p for s in spans for p in range(*s)] == list(range(len(rows)))
        _check_chain(plan, schedule, rank, seen_of)


def _check_chain(plan, schedule, rank, want):
    """Links see what runs see, and are cut where rows differ in what comes before or after."""
    length, sizes = len(want[0]), schedule.sizes
    state, ended = np.zeros(length, int), np.zeros(length, bool)
    counts = {o: np.zeros_like(seen) for o, seen in zip(schedule.owners(rank), want, strict=True)}
    for owner, links in schedule.chain(rank).items():
        inside = schedule.needed(rank, owner)
        for link in links:
            (a, b), (c, d) = link.call.spans["i"], link.call.spans["j"]
            assert (state[a:b] == link.before).all() and not ended[a:b].any()
            assert inside[0] <= c < d <= inside[1]
            state[a:b] += 1
            ended[a:b] = link.last
            for x in range(a, b):
                for y in range(c, d):
                    told = link.call.starts["i"] + x - a, link.call.starts["j"] + y - c
                    counts[owner][x, y] += masks_like(plan, *told, sizes)
    for found, seen in zip(counts.values(), want, strict=True):
        np.testing.assert_array_equal(found, seen)
    assert (ended == (state > 0)).all()
    unseen = [x for span in schedule.unseen(rank) for x in range(*span)]
    assert unseen == np.flatnonzero(state == 0).tolist()


@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"causal": True, "window": 5}, {"causal": True, "alibi": True}, {}],
    ids=str,
)  # fmt: skip
def test_one_run_over_the_data_of_two(options, monkeypatch):
    """Where it is found: each row is in one run, which sees what the row sees of both."""
    monkeypatch.setattr(plan_module, "ALIGNED", 1)
    plan = plan_of(split(ops.attention(head_dim=4, **options), ["i", "j"]))
    found = 0
    for layout in (ShardLayout.zigzag(16, 2), ShardLayout.even(16, 2), ShardLayout(
        (((12, 16), (0, 3)), ((3, 8), (8, 12)))
    )):  # fmt: skip
        schedule = ShardSchedule(plan, {"i": layout, "j": layout})
        for rank in range(2):
            made = schedule.together(rank)
            if made is None:
                continue
            found += 1
            theirs = _positions(layout.pieces[1 - rank])[slice(*made.needed)]
            own, rows = _positions(layout.pieces[rank]), _positions(layout.pieces[rank])
            columns = [*own, *theirs] if made.own_first else [*theirs, *own]
            assert made.border == len(own if made.own_first else theirs)
            count = np.zeros((len(rows), len(columns)), int)
            for call in made.calls:
                (a, b), (c, d) = call.spans["i"], call.spans["j"]
                for x in range(a, b):
                    for y in range(c, d):
                        told = call.starts["i"] + x - a, call.starts["j"] + y - c
                        count[x, y] += masks_like(plan, *told, schedule.sizes)
            want = [[masks_like(plan, x, y, schedule.sizes) for y in columns] for x in rows]
            np.testing.assert_array_equal(count, np.array(want, int))
            covered = sorted(x for call in made.calls for x in range(*call.spans["i"]))
            assert covered == [*range(len(rows))]
    assert found >= (0 if "window" in options else 2)


def test_data_come_to_all_lanes_at_once_where_all_run_at_once():
    def rows(size, lanes, rank=0, **options):
        plan = plan_of(split(ops.attention(head_dim=4, **options), ["i", "j"]))
        layout = ShardLayout.zigzag(size, 2) if options else ShardLayout.even(size, 2)
        return ShardSchedule(plan, {"i": layout, "j": layout}).step_at_once(rank, lanes)

    assert rows(4096, 16, causal=True) == 1536  # 8 tiles of rows wait, of 16 lanes
    assert rows(4096, 8, 1, causal=True) == 768
    assert rows(4096, 17, causal=True) == rows(4096, 16, 1, causal=True) == 0  # some come later
    assert rows(256, 1, causal=True) == 0  # what comes has no four parts of whole tiles
    assert rows(4096, 1) == 0  # kernels that run forward


def _positions(pieces):
    return [x for start, end in pieces for x in range(start, end)]


def test_causal_work_is_one_run_a_step():
    plan = plan_of(split(ops.attention(head_dim=4, causal=True), ["i", "j"]))
    layout = ShardLayout.zigzag(64, 4)
    schedule = ShardSchedule(plan, {"i": layout, "j": layout})
    areas = []
    for rank in range(4):
        runs = [run for owner in range(4) for run in schedule.runs(rank, owner)]
        assert len(runs) == 4
        spans = [run.call.spans for run in runs]
        areas.append(np.sum([(s["i"][1] - s["i"][0]) * (s["j"][1] - s["j"][0]) for s in spans]))
    assert len(set(areas)) == 1  # the same work on each


def test_what_is_met_late_takes_no_shorter_programs():
    """Where parts travel, a quarter of a device's own data is met by all its rows at the end."""
    plan = plan_of(split_vjp(ops.attention(head_dim=4, causal=True), ["i", "j"])[1])
    layout = ShardLayout.zigzag(4096, 2)
    schedule = ShardSchedule(plan, {"i": layout, "j": layout})
    for rank in range(2):
        own = [(r.call.spans, r.late) for r in schedule.runs(rank, rank)]
        assert own == [({"i": (0, 2048), "j": (512, 2048)}, False),
                       ({"i": (0, 2048), "j": (0, 512)}, True)]  # fmt: skip
        assert not any(r.late for r in schedule.runs(rank, 1 - rank))
        every = [r for owner in range(2) for r in schedule.runs(rank, owner)]
        assert {r.slots["i"] for r in every} == {0}  # an owner joins one part of each device
    assert [s.span for s in schedule.stretches("i", 1)] == [(0, 2048)]  # by one kernel
    adds = ShardSchedule(plan, {"i": layout, "j": layout}, adds=True)
    assert [(s.span, s.count) for s in adds.stretches("j", 0)] == [((0, 2048), 1)]


def test_layouts():
    assert ShardLayout.contiguous([3, 0, 2]).pieces == (((0, 3),), ((3, 3),), ((3, 5),))
    assert ShardLayout.even(7, 3).lengths == (2, 2, 3)
    assert ShardLayout.zigzag(8, 2).pieces == (((0, 2), (6, 8)), ((2, 4), (4, 6)))
    assert list(accumulate(ShardLayout.zigzag(13, 3).checked().lengths))[-1] == 13
    with pytest.raises(UsageError, match="on two devices"):
        ShardLayout((((0, 3),), ((2, 5),))).checked()
    with pytest.raises(UsageError, match="on no device"):
        ShardLayout((((0, 3),), ((4, 5),))).checked()


def test_a_form_with_an_argument_decides_nothing():
    masks = Masks((Form(0, {"i": 1}, {}, {}, known=False),), movable=True)
    assert masks.seen({"i": 3}, {"i": 0}, {"i": 3}).name == "SOME"


def test_kernels_on_this_machine():
    """Local kernel and join, compiled: the one thing that the tests above do not run."""
    from neptune_mlir import compile

    p = Program("weights")
    i, j = p.axes("i j")
    x, v = p.input("x", i, j), p.input("v", j)
    s = where(j <= i * 3, x[i, j], -inf)
    w = exp(s - where(max(s, j) == -inf, 0.0, max(s, j)))
    p.output(sum(w * v[j], j) / sum(w, j), i)
    made = split(p, ["j"])
    local, join = compile(made.local), compile(made.join("j", 2))
    a, b = (x.astype(np.float32) for x in tensors((5, 12), (12,)))
    numbers = {"start": (0, 7), "size": (12, 12)}
    parts = [local(a[:, c].copy(), b[c].copy(), *(numbers[p.kind][k] for p in made.positions))
             for k, c in enumerate((slice(0, 7), slice(7, 12)))]  # fmt: skip
    got = join(*slots(parts))
    np.testing.assert_allclose(got, p.reference(a, b), rtol=1e-6, atol=1e-6)


def predicted(size, devices, causal=False, bandwidth=360e9, gradients=0.0):
    program = ops.attention(head_dim=128, causal=causal, dtype="bf16")
    cut = split_vjp(program, ["i", "j"])[1] if gradients else split(program, ["i", "j"])
    plan = plan_of(cut)
    layout = ShardLayout.zigzag(size, devices)
    schedule = ShardSchedule(plan, {"i": layout, "j": layout})
    speed = Speed(points=gradients or 1e11, memory=3.8e12, gap=2e-6)
    link = Link("a link", bandwidth, 10e-6, "assumed")
    return predict(schedule, {"b": 1, "h": 16}, speed, link)


def test_the_model_counts_what_is_computed_and_what_is_hidden():
    for causal in (False, True):
        pairs = 16384 * 16385 / 2 if causal else 16384**2
        found = predicted(16384, 2, causal)
        gaps = 6e-6 if causal else 4e-6  # half of the rows see nothing of the other device
        assert found.compute == pytest.approx(pairs / 2 / 1e11 + gaps, rel=2e-3)
        assert found.exposed == 0 and found.join == 0 and found.total == found.compute
    slow = predicted(16384, 2, bandwidth=1e9)
    sent = 2 * 16 * 8192 * 128 * 2 / 1e9
    last = slow.compute / 2  # what only begins when the data are there
    assert slow.total == pytest.approx(sent + 10e-6 + last, rel=1e-3)


def test_the_model_hides_parts_of_gradients_behind_what_is_late():
    for causal in (False, True):
        assert predicted(16384, 2, causal, gradients=2.7e10).exposed == 0
    slow = predicted(16384, 2, bandwidth=20e9, gradients=2.7e10)
    own, data = 8192**2 / 2.7e10, 2 * 16 * 8192 * 128 * 2 / 20e9
    first, last = own * 3 / 4 + 2e-6, own / 4 + 2e-6
    assert slow.exposed == pytest.approx(data + 1e-5 - first + 2 * data + 1e-5 - last, rel=1e-6)

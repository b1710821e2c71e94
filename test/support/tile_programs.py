# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hand-written tile IR, in the style that docs/architecture.md gives, for tests of the targets."""

from __future__ import annotations


def attention(
    head: int, tile_i: int, tile_j: int, *, causal: bool = False, dtype: str = "f32"
) -> str:
    """softmax(scale * q k^T) v over [b, h, n, head], streamed over the keys; b, h, n dynamic."""
    t = dtype
    full = f"""
      %full:3 = scf.for %j = %zero to %fullend step %ctj
          iter_args(%m0 = %minit, %l0 = %linit, %o0 = %oinit)
          -> (tensor<{tile_i}xf32>, tensor<{tile_i}xf32>, tensor<{tile_i}x{head}xf32>) {{
{_step(head, tile_i, tile_j, t, None)}
      }}"""
    mask = """
          %gj = arith.addi %j, %jj : index
          %gi = arith.addi %i, %ii : index
          %in = arith.cmpi slt, %gj, %n : index
          %le = arith.cmpi sle, %gj, %gi : index
          %ok = arith.andi %in, %le : i1"""
    if not causal:
        mask = """
          %gj = arith.addi %j, %jj : index
          %ok = arith.cmpi slt, %gj, %n : index"""
    bounds = "%jend = arith.constant 0 : index"
    if causal:
        bounds = f"""
      %iend = affine.min affine_map<(i)[n] -> (i + {tile_i}, n)>(%i)[%n]
      %jend = arith.addi %iend, %zero : index
      %fullend = affine.min affine_map<(i)[n] -> ((i + 1) floordiv {tile_j} * {tile_j},
                                     n floordiv {tile_j} * {tile_j})>(%i)[%n]"""
    else:
        bounds = f"""
      %jend = arith.addi %n, %zero : index
      %fullend = affine.apply affine_map<()[n] -> (n floordiv {tile_j} * {tile_j})>()[%n]"""
    return f"""
func.func @attention(%q: tensor<?x?x?x{head}x{t}>, %k: tensor<?x?x?x{head}x{t}>,
                     %v: tensor<?x?x?x{head}x{t}>, %scale: f32) -> tensor<?x?x?x{head}x{t}> {{
  %zero = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %ctj = arith.constant {tile_j} : index
  %b = tensor.dim %q, %zero : tensor<?x?x?x{head}x{t}>
  %h = tensor.dim %q, %c1 : tensor<?x?x?x{head}x{t}>
  %nq = tensor.dim %q, %c2 : tensor<?x?x?x{head}x{t}>
  %n = tensor.dim %k, %c2 : tensor<?x?x?x{head}x{t}>
  %blocks = affine.apply affine_map<()[n] -> (n ceildiv {tile_i})>()[%nq]
  %empty = tensor.empty(%b, %h, %nq) : tensor<?x?x?x{head}x{t}>
  %out = scf.forall (%ib, %ih, %it) in (%b, %h, %blocks)
      shared_outs(%dst = %empty) -> (tensor<?x?x?x{head}x{t}>) {{
      %f0 = arith.constant 0.0 : f32
      %z = arith.constant 0.0 : {t}
      %ninf = arith.constant 0xFF800000 : f32
      %i = affine.apply affine_map<(i) -> (i * {tile_i})>(%it)
      %ni = affine.min affine_map<(i)[n] -> ({tile_i}, n - i)>(%i)[%nq]
      {bounds}
      %qs = tensor.extract_slice %q[%ib, %ih, %i, 0] [1, 1, %ni, {head}] [1, 1, 1, 1]
        : tensor<?x?x?x{head}x{t}> to tensor<?x{head}x{t}>
      %hi = affine.apply affine_map<(s) -> ({tile_i} - s)>(%ni)
      %qt = tensor.pad %qs low[0, 0] high[%hi, 0] {{
      ^bb0(%p0: index, %p1: index):
        tensor.yield %z : {t}
      }} : tensor<?x{head}x{t}> to tensor<{tile_i}x{head}x{t}>
      %e1 = tensor.empty() : tensor<{tile_i}xf32>
      %e2 = tensor.empty() : tensor<{tile_i}x{head}xf32>
      %minit = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<{tile_i}xf32>) -> tensor<{tile_i}xf32>
      %linit = linalg.fill ins(%f0 : f32) outs(%e1 : tensor<{tile_i}xf32>) -> tensor<{tile_i}xf32>
      %oinit = linalg.fill ins(%f0 : f32) outs(%e2 : tensor<{tile_i}x{head}xf32>)
        -> tensor<{tile_i}x{head}xf32>
{full}
      %part:3 = scf.for %j = %fullend to %jend step %ctj
          iter_args(%m0 = %full#0, %l0 = %full#1, %o0 = %full#2)
          -> (tensor<{tile_i}xf32>, tensor<{tile_i}xf32>, tensor<{tile_i}x{head}xf32>) {{
{_step(head, tile_i, tile_j, t, mask)}
      }}
      %re = tensor.empty() : tensor<{tile_i}x{head}x{t}>
      %r = linalg.generic {{indexing_maps = [affine_map<(i, e) -> (i, e)>,
          affine_map<(i, e) -> (i)>, affine_map<(i, e) -> (i, e)>],
          iterator_types = ["parallel", "parallel"]}}
          ins(%part#2, %part#1 : tensor<{tile_i}x{head}xf32>, tensor<{tile_i}xf32>)
          outs(%re : tensor<{tile_i}x{head}x{t}>) {{
      ^bb0(%a: f32, %l: f32, %x: {t}):
        %dead = arith.cmpf oeq, %l, %f0 : f32
        %d = arith.divf %a, %l : f32
        %y = arith.select %dead, %f0, %d : f32
        {"" if t == "f32" else f"%yt = arith.truncf %y : f32 to {t}"}
        linalg.yield {"%y : f32" if t == "f32" else f"%yt : {t}"}
      }} -> tensor<{tile_i}x{head}x{t}>
      %valid = tensor.extract_slice %r[0, 0] [%ni, {head}] [1, 1]
        : tensor<{tile_i}x{head}x{t}> to tensor<?x{head}x{t}>
      scf.forall.in_parallel {{
        tensor.parallel_insert_slice %valid into %dst[%ib, %ih, %i, 0] [1, 1, %ni, {head}]
          [1, 1, 1, 1] : tensor<?x{head}x{t}> into tensor<?x?x?x{head}x{t}>
      }}
  }} {{neptune.kernel = "attention_0"}}
  return %out : tensor<?x?x?x{head}x{t}>
}}
"""


def _step(head: int, tile_i: int, tile_j: int, t: str, mask: str | None) -> str:
    kinds = 'iterator_types = ["parallel", "parallel"]'
    ext = (
        "" if t == "f32" else f"%af = arith.extf %a : {t} to f32\n%bf = arith.extf %b2 : {t} to f32"
    )
    a, b2 = ("%a", "%b2") if t == "f32" else ("%af", "%bf")
    # p takes the type of v, as a matrix instruction wants it
    p_cast = "" if t == "f32" else f"%pt = arith.truncf %e : f32 to {t}"
    p_value = "%e : f32" if t == "f32" else f"%pt : {t}"
    load = "\n".join(
        f"""
        %{x}s = tensor.extract_slice %{x}[%ib, %ih, %j, 0] [1, 1, %nj, {head}] [1, 1, 1, 1]
          : tensor<?x?x?x{head}x{t}> to tensor<?x{head}x{t}>
        %{x}t = tensor.pad %{x}s low[0, 0] high[%hj, 0] {{
        ^bb0(%p0: index, %p1: index):
          tensor.yield %z : {t}
        }} : tensor<?x{head}x{t}> to tensor<{tile_j}x{head}x{t}>"""
        for x in "kv"
    )
    body = "%x = arith.mulf %a, %scale : f32"
    result = "%x"
    if mask:
        body += f"""
          %ii = linalg.index 0 : index
          %jj = linalg.index 1 : index{mask}
          %w = arith.select %ok, %x, %ninf : f32"""
        result = "%w"
    return f"""
        %nj = affine.min affine_map<(j)[n] -> ({tile_j}, n - j)>(%j)[%n]
        %hj = affine.apply affine_map<(s) -> ({tile_j} - s)>(%nj)
        {load}
        %se = tensor.empty() : tensor<{tile_i}x{tile_j}xf32>
        %sz = linalg.fill ins(%f0 : f32) outs(%se : tensor<{tile_i}x{tile_j}xf32>)
          -> tensor<{tile_i}x{tile_j}xf32>
        %s = linalg.generic {{indexing_maps = [affine_map<(i, j, d) -> (i, d)>,
            affine_map<(i, j, d) -> (j, d)>, affine_map<(i, j, d) -> (i, j)>],
            iterator_types = ["parallel", "parallel", "reduction"]}}
            ins(%qt, %kt : tensor<{tile_i}x{head}x{t}>, tensor<{tile_j}x{head}x{t}>)
            outs(%sz : tensor<{tile_i}x{tile_j}xf32>) {{
        ^bb0(%a: {t}, %b2: {t}, %acc: f32):
          {ext}
          %mul = arith.mulf {a}, {b2} : f32
          %add = arith.addf %acc, %mul : f32
          linalg.yield %add : f32
        }} -> tensor<{tile_i}x{tile_j}xf32>
        %xt = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
            affine_map<(i, j) -> (i, j)>], {kinds}}}
            ins(%s : tensor<{tile_i}x{tile_j}xf32>) outs(%se : tensor<{tile_i}x{tile_j}xf32>) {{
        ^bb0(%a: f32, %u: f32):
          {body}
          linalg.yield {result} : f32
        }} -> tensor<{tile_i}x{tile_j}xf32>
        %m = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
            affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}}
            ins(%xt : tensor<{tile_i}x{tile_j}xf32>) outs(%m0 : tensor<{tile_i}xf32>) {{
        ^bb0(%a: f32, %acc: f32):
          %y = arith.maximumf %acc, %a : f32
          linalg.yield %y : f32
        }} -> tensor<{tile_i}xf32>
        %pe = tensor.empty() : tensor<{tile_i}x{tile_j}x{t}>
        %p = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
            affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], {kinds}}}
            ins(%xt, %m : tensor<{tile_i}x{tile_j}xf32>, tensor<{tile_i}xf32>)
            outs(%pe : tensor<{tile_i}x{tile_j}x{t}>) {{
        ^bb0(%a: f32, %g: f32, %u: {t}):
          %none = arith.cmpf oeq, %g, %ninf : f32
          %ref = arith.select %none, %f0, %g : f32
          %sub = arith.subf %a, %ref : f32
          %e = math.exp %sub : f32
          {p_cast}
          linalg.yield {p_value}
        }} -> tensor<{tile_i}x{tile_j}x{t}>
        %lc = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
            affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
            ins(%l0, %m0, %m : tensor<{tile_i}xf32>, tensor<{tile_i}xf32>, tensor<{tile_i}xf32>)
            outs(%e1 : tensor<{tile_i}xf32>) {{
        ^bb0(%a: f32, %old: f32, %new: f32, %u: f32):
          %same = arith.cmpf oeq, %old, %new : f32
          %sub = arith.subf %old, %new : f32
          %e = math.exp %sub : f32
          %r2 = arith.mulf %a, %e : f32
          %y = arith.select %same, %a, %r2 : f32
          linalg.yield %y : f32
        }} -> tensor<{tile_i}xf32>
        %l = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
            affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}}
            ins(%p : tensor<{tile_i}x{tile_j}x{t}>) outs(%lc : tensor<{tile_i}xf32>) {{
        ^bb0(%a: {t}, %acc: f32):
          {"" if t == "f32" else f"%af = arith.extf %a : {t} to f32"}
          %y = arith.addf %acc, {a} : f32
          linalg.yield %y : f32
        }} -> tensor<{tile_i}xf32>
        %oc = linalg.generic {{indexing_maps = [affine_map<(i, e) -> (i, e)>,
            affine_map<(i, e) -> (i)>, affine_map<(i, e) -> (i)>,
            affine_map<(i, e) -> (i, e)>], {kinds}}}
            ins(%o0, %m0, %m : tensor<{tile_i}x{head}xf32>, tensor<{tile_i}xf32>,
              tensor<{tile_i}xf32>)
            outs(%e2 : tensor<{tile_i}x{head}xf32>) {{
        ^bb0(%a: f32, %old: f32, %new: f32, %u: f32):
          %same = arith.cmpf oeq, %old, %new : f32
          %sub = arith.subf %old, %new : f32
          %e = math.exp %sub : f32
          %r2 = arith.mulf %a, %e : f32
          %y = arith.select %same, %a, %r2 : f32
          linalg.yield %y : f32
        }} -> tensor<{tile_i}x{head}xf32>
        %o = linalg.generic {{indexing_maps = [affine_map<(i, e, j) -> (i, j)>,
            affine_map<(i, e, j) -> (j, e)>, affine_map<(i, e, j) -> (i, e)>],
            iterator_types = ["parallel", "parallel", "reduction"]}}
            ins(%p, %vt : tensor<{tile_i}x{tile_j}x{t}>, tensor<{tile_j}x{head}x{t}>)
            outs(%oc : tensor<{tile_i}x{head}xf32>) {{
        ^bb0(%a: {t}, %b2: {t}, %acc: f32):
          {ext}
          %mul = arith.mulf {a}, {b2} : f32
          %add = arith.addf %acc, %mul : f32
          linalg.yield %add : f32
        }} -> tensor<{tile_i}x{head}xf32>
        scf.yield %m, %l, %o
          : tensor<{tile_i}xf32>, tensor<{tile_i}xf32>, tensor<{tile_i}x{head}xf32>"""


def single(
    body: str,
    maps: list[str],
    kinds: str,
    inputs: list[tuple[list[int], str]],
    output: tuple[list[int], str],
    init: str | None = None,
) -> str:
    """One kernel with one program that computes one `linalg.generic` on whole static tiles.

    `maps` are affine maps for the inputs and the output; `kinds` has a letter per loop, p or r;
    `body` reads %a0, %a1, ... and %acc and ends in the yield; `init` is what the output starts
    from (a constant, for reductions).
    """

    def tensor(shape: list[int], dtype: str) -> str:
        return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"

    def slice_of(name: str, shape: list[int]) -> str:
        zeros, ones = ", ".join("0" * len(shape)), ", ".join("1" * len(shape))
        return f"{name}[{zeros}] [{', '.join(map(str, shape))}] [{ones}]"

    out = tensor(*output)
    types = [tensor(*x) for x in inputs]
    arguments = ", ".join(f"%x{k}: {t}" for k, t in enumerate(types))
    loads = "\n".join(
        f"%t{k} = tensor.extract_slice {slice_of(f'%x{k}', s)} : {t} to {t}"
        for k, ((s, _), t) in enumerate(zip(inputs, types, strict=True))
    )
    tiles = ", ".join(f"%t{k}" for k in range(len(inputs)))
    ins = f"ins({tiles} : {', '.join(types)})" if inputs else ""
    start, fill = "%unset", ""
    if init is not None:
        literal = init if output[1] == "i1" else f"{init} : {output[1]}"
        fill = f"""%start = arith.constant {literal}
      %begun = linalg.fill ins(%start : {output[1]}) outs(%unset : {out}) -> {out}"""
        start = "%begun"
    block = ", ".join([f"%a{k}: {d}" for k, (_, d) in enumerate(inputs)] + [f"%acc: {output[1]}"])
    iterators = ", ".join('"parallel"' if k == "p" else '"reduction"' for k in kinds)
    return f"""
func.func @single({arguments}) -> {out} {{
  %programs = arith.constant 1 : index
  %empty = tensor.empty() : {out}
  %res = scf.forall (%at) in (%programs) shared_outs(%dst = %empty) -> ({out}) {{
      {loads}
      %unset = tensor.empty() : {out}
      {fill}
      %r = linalg.generic {{indexing_maps = [{", ".join(f"affine_map<{m}>" for m in maps)}],
          iterator_types = [{iterators}]}} {ins} outs({start} : {out}) {{
      ^bb0({block}):
        {body}
      }} -> {out}
      scf.forall.in_parallel {{
        tensor.parallel_insert_slice %r into {slice_of("%dst", output[0])} : {out} into {out}
      }}
  }}
  return %res : {out}
}}
"""

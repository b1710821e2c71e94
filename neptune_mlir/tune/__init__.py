# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune tune`: fills the table of what is best on a chip (`targets/tuned.py`), for streams of
a shape (build, run, record) or for one program (search).

    candidates.py  what there is to choose from for a stream, and why some of it is not tried
    build.py       compiles the candidates of programs into a folder (anywhere, in parallel)
    builder.py     a process that compiles for it
    arguments.py   arguments for a call of any program
    manifest.py    what such a folder holds
    run.py         measures a folder on a GPU: a process a candidate, by rounds that halve the field
    worker.py      what the process of a candidate does
    gain.py        how much faster one is than another, and how sure that is
    record.py      what won by more than the noise, as entries of a table

    search.py      what to try next: random points, then evolution with a surrogate
    trial.py       one program on this machine: compiles a point, judges it, takes times in turns
    session.py     a search until its budget ends, and the best points beside the rule

run.py and record.py work without MLIR. A candidate is compiled as any program is, with a table that
has its entry: what is measured is what users get once the entry is in their table.
"""

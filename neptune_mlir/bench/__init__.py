# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune bench`: operators on a GPU beside their peers.

    build.py     compiles the bundles (anywhere; needs the compiler)
    run.py       conducts the measurement: cells, candidates in turns, limits, results as JSON;
                 jobs.py does for cells that have little in common, builder.py compiles for it
    check.py     correctness alone, at awkward lengths, and of the zoo
    process.py   one process a candidate, spoken to in lines of JSON
    worker.py    what such a process does: inputs, poisoned outputs, errors, times
    problem.py   an operator at a length: inputs, float64 reference, operations, bytes
    rows.py      the same for programs over rows of a matrix
    draws.py     random programs and shapes; sweep.py what is made of their results
    device.py    what a worker does otherwise on a GPU and on the CPU
    peers.py     the candidates that are not ours; kernels/ has those that take more than a call
    profile.py   where a kernel's cycles go, from clock samples; timeline.py draws it
    timing.py    medians of events with the L2 flushed, CUDA graphs for short ones
    clocks.py    SM clock and power meanwhile
    figures.py   statistics, errors, speed-of-light bound and score
    results.py   rows, what follows from them, JSON; report.py tables; plot.py the SVG

All but build.py and builder.py run without MLIR.
"""

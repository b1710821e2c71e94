# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When a fused program counts as right: its error beside that of the program as written.

Both are measured against the program in float64. The rule, for every result:

* NaN, +inf and -inf stand where the program defines them, element by element. The program
  defines them where the unfused program and float64 agree. Where they do not, or where the
  result is a number too large for its type, or the unfused program is off by more than an eighth
  of a row, the program as written leaves the range of its types: the fused one may give what
  either gives, or anything that is not finite, or 0 (which dividing by an overflow makes). It is
  luck whether noise overflows: it may where it does, unfused, when inputs move by a last place.
  Where more range (`ranged`) leaves less than a quarter of its error, 2^13 ulps are enough, or a
  64th of a row. What it gives with more range is right there, too.
* An infinity or a NaN in an argument that no exponent is made of is added up and multiplied, and
  which of them comes out depends on the order of a sum: results that depend on it may be either,
  and need not be finite. Where the program divides by 0 and makes a NaN, an infinity is as good.
* An infinity that meets a 0 makes a NaN of the program as written, and none of a fused one that
  does not visit what a mask leaves out. Where it goes on to an infinity, so has float64 to with a
  very large number in its place.
* Arguments that are all far from 1 are another matter than one that is: products of them come
  near the ends of the range of f32. There a row within `HEADROOM` of these ends may overflow or
  vanish, which is what moving factors behind sums may cost (numerics.md, `default`). Where the
  product of all that are far comes within `HEADROOM` of the ends, a sum of the fused program may,
  whatever its result is: nothing is compared.
* What a mask leaves out is not visited, so an infinity or a NaN of the inputs, or a product that
  overflows, may be gone where the program as written multiplies it by 0. What is wrong by all other
  rules is judged again beside the program as written where 0 times anything is 0 (`hiding`), with
  its own float64, sums in other orders and other roundings: nothing else may come of it. Some of
  what is left out is visited beside what is not, so a NaN of the program as written may stay one.
* An infinity or a NaN that the program multiplies by 0, so that no number in its place changes a
  result, may be hidden: the fused program does not visit what a mask leaves out. It is right then.
* error(fused) <= 2 error(unfused) + 4 ulp, of the result's type or of the narrowest one that the
  program rounds it to on the way: which way a number falls there is luck, which a last place of
  the inputs does not move. The error of a row (the last dimension; each element
  of a vector is a row) is the norm of the difference over the norm of the row, in ulps of the
  result's type; that of a result is its worst row's. A row of which the unfused program loses an
  eighth is compared with itself alone, and is no bound for others. So a row of large numbers hides
  no error of a small one, and the cancellation in one element of a product decides nothing.
* Rounding is luck, most of all in results of few elements. What exceeds the bound is run again
  on inputs that differ in the last place, and the bound holds for the root mean square over these,
  which is known the better the more there are: what is close, or in few runs, is run more often.
  An error of the first run of which no other of 256 has half, nor the program as written with
  its sums in other orders, is that input's, and no luck.
* A row that a change in the last place of the inputs moves by a quarter of its size or more has
  no digits to lose: errors up to that movement are accepted, and up to twice what the program as
  written makes of it with other roundings (below); so where most of these make another row of it.
* A row that is 0 because its inputs are equal (a variance), or no more than the rounding of that,
  may be off by what a last place of each of them would make of it. The last place of a 0 that an
  exponent is made of is that of the largest number beside it, or of 1.
* Of a row that the unfused program gets wrong by more than 2^13 ulps most digits are gone: the
  fused one may be 8 times as far off. Where it is off by the row itself, there is nothing but
  noise: four times of it, and powers up to the fourth of that.
* Of numbers of which the unfused program makes a NaN or an infinity it has no error. What counts
  is that of the same program with the digits of f32 and the range of f64 (`ranged`), or that the
  program gives what the fused one gives when its sums take another order. Where there is no such
  program (`whole`), the fused one may be off by 2^8 ulps.
* A product near the smallest normal number loses digits, or is 0. Where that is most of what the
  unfused program loses (`ranged` loses less than a quarter of it), the fused one may lose 8 times
  as much: each of its products loses what one of the program's does, and it has more of them.
* Of a row that is 0 because its inputs are equal, an unfused program that leaves the range of its
  types may make a 0 by luck: it defines nothing where `ranged` is another number.
* In which order a sum adds up its elements is luck as well: nobody says it, and each library,
  device and number of threads has another. Further runs have the sums of the unfused program in
  other orders (`orders`). An element that a last place of the inputs makes a NaN or an infinity of,
  where it is a number without (the root of a variance of equal numbers and signed weights), is not
  compared in these runs, whether float64 or the unfused program makes it. Where the unfused
  program makes a number of what is a NaN, with its sums in another order, a number will do; so it
  does where float64 makes one of inputs that differ in the last place.
* Roundings may stay as they are where the inputs move by a last place: that of x in x - 1e4, or of
  products near the smallest normal number. Further runs then are one run, and even out nothing. So
  what is still over the bound is run on inputs that move by more, a part of themselves from 2^-18
  to 2^-6: data alone, or all numbers, those that equal each other alike (of zeros and ones, and of
  masks, no rounding moves else). The bound has to hold there. The input has to be like these:
  float64 moves by less than a quarter of the row, and as much beside the inputs as it does by a
  last place (up to 4 times). With some of ROUNDINGS other roundings (below) the program as written
  has half of the error of the fused one here, or it has on inputs that a last place moves alike.
  A row that is 0 because inputs are equal may be off by what that makes of other numbers that are.
* The bound holds beside the ROUNDINGS, too: the root mean square that the program as written has
  with them, over COARSER (but of a row that no input moves, which has no other draws). Two sums
  that round alike do so by luck, which moving inputs keep; a number that is used twice does always.
* Whether an element is a NaN, an infinity or a number may be luck too: it is where the program as
  written, with the digits of f32, makes either, depending on how its results are rounded
  (`round-floats`: a rounding keeps numbers that need none, what is equal and what is ordered; what
  is denormal in f32 has no more digits than there). The fused one may make what one of ROUNDINGS
  makes, and a NaN where that alone overflows, and float64 does not.
* What is still wrong may be luck of the order of a sum that no move evens out: it is right beside
  the worst of many orders of the program as written, those of elements too (drawn ones, and those
  by the sizes of one argument), if the bound holds on average over inputs with their elements in
  other orders (`rearranged`). What one of these orders
  gives is right where another one leaves the range of its types. So is what it gives with exact
  sums where it leaves it with these: a number that needs the noise of a sum to stay in range (a
  variance of equal numbers, which is 0 with an exact mean, and what is divided by its root
  overflows) is luck.
* A row that a last place of float64 moves by more than a quarter of an ulp is not compared. Nor is
  one that moves so far where each rounding of float64 goes down, or up (`directed`): x + s is s in
  float64, too, for s large enough, and where the last digits of s are 0 all sums of it are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import EPSILON, LARGEST, SMALLEST, Array

# The part of the range of f32 that moving factors may cost where several inputs are scaled at once:
# beyond the largest number over this, or the smallest times this, values may overflow or vanish.
HEADROOM = 2.0**40

TIMES = 2.0
# The reference of an f64 program is another order of the same sums: 1e-12 instead of 4 ulp.
# Of 8 bits one number may be the other neighbour.
SLACK = {"f16": 4.0, "bf16": 4.0, "f32": 4.0, "f64": 1e-12 / EPSILON["f64"], "f8E4M3FN": 1.0}
NO_DIGITS = 0.25
OVERFLOWN = 0.125  # of the size of a row: an unfused program that is further off defines nothing
GARBAGE, WORSE = 2.0**13, 8.0  # ulps of an unfused program, and how much worse a fused one may be
OFF = 2.0**-6  # of the size of a row, at most: GARBAGE, where more range gives back what is lost
DIGITS_OF_F32 = 24  # in bits
LOST = 2.0**8  # ulps of a fused program where that makes a NaN, and nobody knows of what
SMALL_PRODUCTS = 0.25  # of the error of an unfused program: less with more range, and range is why
SELDOM, MANY = 16, 256  # an error in one of so many runs is rare; in so many the same is made again
ALIKE = 4.0  # times as sensitive: inputs further away that are more so, or less, are others
NOISE = 4.0**4  # how much worse where the unfused program is off by the row itself
ANY = (0.0, 1.0, 3e4, -3e4)  # numbers in place of an infinity or a NaN
COARSER = 2.0**0.5  # a rounding up or down by luck, beside one to nearest (root mean square)
FURTHEST = 2.0**-6  # the part of themselves by which inputs move at most
COUNTS = 16.0  # whole numbers up to here may be counts, and weights that are 0 or 1

# What two programs that compute the same may differ by, relative, over a whole result (Frobenius).
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2, "f8E4M3FN": 6e-2}


def bound(unfused: Any, dtype: str = "f32") -> Any:
    """What the error of a fused program may be, in ulps of its type, beside that of the program as
    written. The stress test (`stress`) asks for the same of every fused form."""
    return TIMES * unfused + SLACK[dtype]


def bases(unfused: Array, dtype: str) -> Array:
    """What the error of each row is compared with: that of the worst row of which the program as
    written leaves something, and its own. Rows are the last dimension."""
    lost = unfused * EPSILON[dtype] > OVERFLOWN
    worst = np.where(lost, 0.0, unfused).max(-1, keepdims=True, initial=0.0)
    return np.asarray(np.maximum(worst, np.where(lost, unfused, 0.0)))


def rounded_to(dtype: str, through: str) -> float | None:
    """`Comparison.slack` of a result that is rounded to another type on the way."""
    if through == dtype or not {dtype, through} <= SLACK.keys():
        return None
    return max(SLACK[dtype], SLACK[through] * EPSILON[through] / EPSILON[dtype])


def ends(dtype: str) -> tuple[float, float]:
    """What a row may vanish below and overflow above, where inputs are scaled together. Sums of
    narrower floats are f32 sums."""
    held = "f64" if dtype == "f64" else "f32"
    return SMALLEST[held] * HEADROOM, LARGEST[held] / HEADROOM

"""Arithmetic on rows in registers (`vector.Row`): attention processes all heads of an edge at once, dropout a row.

Each function is an intrinsic: a kernel calls it with rows. Its body runs when numba compiles the kernel, and returns a
signature and the generator of its code. `a(a, b)` is the signature "from the types of a and b to that of a".
"""

# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from gnnexp.kernels.rows.vector import Row, decoded, packed, splat

_INFINITY = float("inf")
# Number of Taylor terms of exp on |r| <= ln(2)/2 for an error below one unit in the last place.
_TERMS = {32: 7, 64: 13}
# Below the first limit exp is 0, above the second it is infinite.
_LIMITS = {32: (-103.98, 88.73), 64: (-745.14, 709.79)}
# ln(2) in two parts, so that n * high is exact.
_LN2 = {32: (0.693359375, -2.12194440e-4), 64: (6.93145751953125e-1, 1.42860682030941723212e-6)}


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Code that applies `function(builder, *vectors)` to corresponding vectors of all arguments."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = signature.return_type
        vectors = [function(builder, *(builder.extract_value(arg, i) for arg in args)) for i in range(row.count)]
        return packed(context, builder, row, vectors)

    return codegen


@intrinsic
def fill(typing: Any, array: Any, value: Any, shape: Any) -> Any:
    """A row of the literal `shape` in which every float is `value`, which has the dtype of `array`."""
    form = decoded(shape)
    row = Row(array.dtype, form.lanes, form.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return packed(context, builder, row, [splat(builder, args[1], row.lanes)] * row.count)

    return row(array, array.dtype, shape), codegen


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b."""
    return a(a, b), _each(ir.IRBuilder.fadd)


@intrinsic
def subtract(typing: Any, a: Any, b: Any) -> Any:
    """a - b."""
    return a(a, b), _each(ir.IRBuilder.fsub)


@intrinsic
def multiply(typing: Any, a: Any, b: Any) -> Any:
    """a * b."""
    return a(a, b), _each(ir.IRBuilder.fmul)


@intrinsic
def divide(typing: Any, a: Any, b: Any) -> Any:
    """a / b."""
    return a(a, b), _each(ir.IRBuilder.fdiv)


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of a and b; b if either is NaN. Pass the new value as b: its NaN shows that a model diverged."""
    return a(a, b), _each(lambda builder, x, y: builder.select(builder.fcmp_ordered(">=", x, y), x, y))


@intrinsic
def magnitude(typing: Any, a: Any) -> Any:
    """|a|."""

    def absolute(builder: Any, x: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", x, ir.Constant(x.type, None)), builder.fneg(x), x)

    return a(a), _each(absolute)


@intrinsic
def ramp(typing: Any, a: Any, sign: Any, slope: Any) -> Any:
    """`a` where `sign` > 0, else `a * slope`: LeakyReLU if `sign` is `a`, its backward pass if `a` is a gradient."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def ramped(builder: Any, x: Any, s: Any) -> Any:
            positive = builder.fcmp_ordered(">", s, ir.Constant(s.type, None))
            return builder.select(positive, x, builder.fmul(x, splat(builder, args[2], a.lanes)))

        return _each(ramped)(context, builder, signature, args[:2])

    return a(a, sign, a.dtype), codegen


@intrinsic
def where_positive(typing: Any, condition: Any, a: Any) -> Any:
    """`a` where `condition` > 0, else 0."""

    def chosen(builder: Any, c: Any, x: Any) -> Any:
        zero = ir.Constant(x.type, None)
        return builder.select(builder.fcmp_ordered(">", c, zero), x, zero)

    return a(condition, a), _each(chosen)


@intrinsic
def exponential(typing: Any, a: Any) -> Any:
    """exp(a), as 2^n times a polynomial; without SVML, numba would call the scalar libm function for every head."""
    return a(a), _each(_exp)


def _exp(builder: Any, x: Any) -> Any:
    kind, lanes = x.type.element, x.type.count
    bits = 32 if kind == ir.FloatType() else 64

    def constant(value: float) -> Any:
        return ir.Constant(x.type, [value] * lanes)

    low, high = _LIMITS[bits]
    clamped = builder.select(builder.fcmp_ordered("<", x, constant(low)), constant(low), x)
    clamped = builder.select(builder.fcmp_ordered(">", clamped, constant(high)), constant(high), clamped)
    name = f"llvm.rint.v{lanes}f{bits}"
    rint = cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type]), name)
    n = builder.call(rint, [builder.fmul(clamped, constant(1 / math.log(2)))])
    rest = clamped
    for part in _LN2[bits]:
        rest = builder.fsub(rest, builder.fmul(n, constant(part)), flags=("contract",))
    power = constant(1 / math.factorial(_TERMS[bits]))
    for term in range(_TERMS[bits] - 1, -1, -1):
        power = builder.fadd(
            builder.fmul(power, rest, flags=("contract",)), constant(1 / math.factorial(term)), flags=("contract",)
        )
    # 2^n is the product of two powers: for denormal or huge results n is outside the range of one exponent.
    half = builder.call(rint, [builder.fmul(n, constant(0.5))])
    for exponent in (half, builder.fsub(n, half)):
        power = builder.fmul(power, _two_to(builder, exponent, bits, kind, lanes))
    power = builder.select(builder.fcmp_ordered("<", x, constant(low)), constant(0.0), power)
    return builder.select(builder.fcmp_ordered(">", x, constant(high)), constant(_INFINITY), power)


def _two_to(builder: Any, n: Any, bits: int, kind: Any, lanes: int) -> Any:
    """2^n for an integer n within the range of the exponent; n is written to the bits of the exponent."""
    mantissa, bias = (23, 127) if bits == 32 else (52, 1023)
    word = ir.VectorType(ir.IntType(bits), lanes)
    whole = builder.fptosi(n, word)
    biased = builder.add(whole, ir.Constant(word, [bias] * lanes))
    return builder.bitcast(builder.shl(biased, ir.Constant(word, [mantissa] * lanes)), ir.VectorType(kind, lanes))

"""Arithmetic on rows in registers: what attention computes for all heads of an edge at once."""

# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from gnnexp.kernels.rows.vector import Row, decoded, packed, splat

_INFINITY = float("inf")
# Taylor terms of exp on |r| <= ln(2)/2 that leave less than one unit in the last place.
_TERMS = {32: 7, 64: 13}
# Below the first exp is 0, above the second infinite.
_LIMITS = {32: (-103.98, 88.73), 64: (-745.14, 709.79)}
# ln(2) in two parts, so that n * high is exact.
_LN2 = {32: (0.693359375, -2.12194440e-4), 64: (6.93145751953125e-1, 1.42860682030941723212e-6)}


def _each(context: Any, builder: Any, row: Row, rows: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """`function` applied to corresponding vectors of `rows`."""
    vectors = [function(*(builder.extract_value(one, i) for one in rows)) for i in range(row.count)]
    return packed(context, builder, row, vectors)


@intrinsic
def fill(typing: Any, array: Any, value: Any, shape: Any) -> Any:
    """A row with the dtype of `array`, every float `value` (of the same dtype)."""
    form = decoded(shape)
    if form is None:
        return None
    row = Row(array.dtype, form.lanes, form.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return packed(context, builder, row, [splat(builder, args[1], row.lanes)] * row.count)

    return row(array, array.dtype, shape), codegen


@intrinsic
def add(typing: Any, a: Any, b: Any) -> Any:
    """a + b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, builder.fadd)

    return a(a, b), codegen


@intrinsic
def subtract(typing: Any, a: Any, b: Any) -> Any:
    """a - b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, builder.fsub)

    return a(a, b), codegen


@intrinsic
def multiply(typing: Any, a: Any, b: Any) -> Any:
    """a * b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, builder.fmul)

    return a(a, b), codegen


@intrinsic
def divide(typing: Any, a: Any, b: Any) -> Any:
    """a / b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, builder.fdiv)

    return a(a, b), codegen


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The larger of a and b; a NaN in b is kept, so that a diverged model shows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, lambda x, y: builder.select(builder.fcmp_ordered(">=", x, y), x, y))

    return a(a, b), codegen


@intrinsic
def magnitude(typing: Any, a: Any) -> Any:
    """|a|."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def one(x: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", x, ir.Constant(x.type, None)), builder.fneg(x), x)

        return _each(context, builder, a, args, one)

    return a(a), codegen


@intrinsic
def ramp(typing: Any, a: Any, sign: Any, slope: Any) -> Any:
    """`a` where `sign` > 0, else `a * slope`: LeakyReLU with sign = a, its derivative with a = the gradient."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def one(x: Any, s: Any) -> Any:
            positive = builder.fcmp_ordered(">", s, ir.Constant(s.type, None))
            return builder.select(positive, x, builder.fmul(x, splat(builder, args[2], a.lanes)))

        return _each(context, builder, a, args[:2], one)

    return a(a, sign, a.dtype), codegen


@intrinsic
def where_positive(typing: Any, condition: Any, a: Any) -> Any:
    """`a` where `condition` > 0, else 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def one(c: Any, x: Any) -> Any:
            zero = ir.Constant(x.type, None)
            return builder.select(builder.fcmp_ordered(">", c, zero), x, zero)

        return _each(context, builder, a, args, one)

    return a(condition, a), codegen


@intrinsic
def exponential(typing: Any, a: Any) -> Any:
    """exp(a): 2^n times a polynomial; numba without SVML would call the scalar libm function per head."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _each(context, builder, a, args, lambda x: _exp(builder, x, a.dtype))

    return a(a), codegen


def _exp(builder: Any, x: Any, dtype: Any) -> Any:
    bits = 32 if dtype == types.float32 else 64
    kind, lanes = x.type.element, x.type.count

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
        power = builder.fadd(builder.fmul(power, rest, flags=("contract",)), constant(1 / math.factorial(term)),
                             flags=("contract",))
    # 2^n as a product of two halves: n itself may lie outside the range of one exponent (denormal or huge results).
    half = builder.call(rint, [builder.fmul(n, constant(0.5))])
    for exponent in (half, builder.fsub(n, half)):
        power = builder.fmul(power, _two_to(builder, exponent, bits, kind, lanes))
    power = builder.select(builder.fcmp_ordered("<", x, constant(low)), constant(0.0), power)
    return builder.select(builder.fcmp_ordered(">", x, constant(high)), constant(_INFINITY), power)


def _two_to(builder: Any, n: Any, bits: int, kind: Any, lanes: int) -> Any:
    """2^n for whole n in the exponent's range, by writing the exponent's bits."""
    mantissa, bias = (23, 127) if bits == 32 else (52, 1023)
    word = ir.VectorType(ir.IntType(bits), lanes)
    whole = builder.fptosi(n, word)
    biased = builder.add(whole, ir.Constant(word, [bias] * lanes))
    return builder.bitcast(builder.shl(biased, ir.Constant(word, [mantissa] * lanes)), ir.VectorType(kind, lanes))

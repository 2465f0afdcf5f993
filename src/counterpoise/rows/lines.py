"""Sums over four rows at a time, in steps of one cache line, for kernels.

Each function emits one loop over vectors of :data:`LANES` numbers. Every step also prefetches one
cache line of other rows, so that reading never waits for arithmetic, nor arithmetic for reading.
A compiler would not vectorise a loop that prefetches. The sums have the same order on every
processor: vectors longer than its registers are split.

Positions are indices into the flat vector ``X``. Prefetching past its end does no harm.
"""

# Numba finds the types itself, and passes the first argument of an intrinsic (call-arg).
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,call-arg"
from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
LINE_BYTES = 64

DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
HALF = ir.VectorType(ir.DoubleType(), LANES // 2)
BITS = ir.VectorType(ir.IntType(1), LANES)
I32, I64 = ir.IntType(32), ir.IntType(64)
# A product and a sum may round once.
FUSED = ("contract", "nsz")


@intrinsic
def prefetch(typing_context, array, index):
    """Prefetch the cache line of ``array[index]``."""

    def emit(context, builder, signature, args):
        _prefetch(builder, _data(context, builder, signature, args, 0), args[1])
        return context.get_dummy_value()

    return types.void(array, index), emit


@intrinsic
def project_four(typing_context, X, d, at, w, bias, z, i, ahead):
    """Write the products with ``w`` of four rows, plus ``bias``, to ``z[i : i + 4]``.

    The rows start at the positions ``at``, and rows to prefetch at ``ahead``. Both are tuples.
    """

    def emit(context, builder, signature, args):
        rows, weights, scores = (_data(context, builder, signature, args, k) for k in (0, 3, 5))
        totals = [cgutils.alloca_once_value(builder, ir.Constant(DOUBLES, None)) for _ in range(4)]
        at = cgutils.unpack_tuple(builder, args[2])

        def step(k, mask):
            factor = _load(builder, weights, k, mask)
            for total, position in zip(totals, at, strict=True):
                x = _load(builder, rows, builder.add(position, k), mask)
                product = builder.fmul(x, factor, flags=FUSED)
                builder.store(builder.fadd(builder.load(total), product, flags=FUSED), total)

        _walk(builder, rows, args[1], cgutils.unpack_tuple(builder, args[7]), step)
        sums = _sum_lanes(builder, [builder.load(total) for total in totals])
        sums = builder.fadd(sums, _spread(builder, args[4], HALF))
        target = builder.bitcast(builder.gep(scores, [args[6]]), HALF.as_pointer())
        builder.store(sums, target, align=8)
        return context.get_dummy_value()

    return types.void(X, d, at, w, bias, z, i, ahead), emit


@intrinsic
def add_four(typing_context, X, d, at, c, i, out, ahead):
    """Add four rows with coefficients ``c[i : i + 4]`` to ``out``.

    Vectors of ``out`` are whole, so its length must be a multiple of :data:`LANES`.
    """

    def emit(context, builder, signature, args):
        rows, scores, target = (_data(context, builder, signature, args, k) for k in (0, 3, 5))
        at = cgutils.unpack_tuple(builder, args[2])
        factors = []
        for j in range(4):
            index = builder.add(args[4], args[4].type(j))
            factors.append(_spread(builder, builder.load(builder.gep(scores, [index])), DOUBLES))

        def step(k, mask):
            total = None
            for position, factor in zip(at, factors, strict=True):
                x = _load(builder, rows, builder.add(position, k), mask)
                product = builder.fmul(x, factor, flags=FUSED)
                total = product if total is None else builder.fadd(total, product, flags=FUSED)
            address = builder.bitcast(builder.gep(target, [k]), DOUBLES.as_pointer())
            total = builder.fadd(builder.load(address, align=8), total, flags=FUSED)
            builder.store(total, address, align=8)

        _walk(builder, rows, args[1], cgutils.unpack_tuple(builder, args[6]), step)
        return context.get_dummy_value()

    return types.void(X, d, at, c, i, out, ahead), emit


def _walk(builder, rows, d, ahead, step):
    """Emit ``step(k, mask)`` for the vectors of ``d`` columns; only the last ones have a mask."""
    line = LINE_BYTES // _itemsize(rows)
    whole = builder.and_(d, d.type(-line))
    with cgutils.for_range_slice(builder, d.type(0), whole, d.type(line), d.type) as (k, _):
        for position in ahead:
            _prefetch(builder, rows, builder.add(position, k))
        for lane in range(0, line, LANES):
            step(builder.add(k, d.type(lane)), None)
    with builder.if_then(builder.icmp_unsigned("<", whole, d)):
        for position in ahead:
            _prefetch(builder, rows, builder.add(position, whole))
        for lane in range(0, line, LANES):
            k = builder.add(whole, d.type(lane))
            with builder.if_then(builder.icmp_unsigned("<", k, d)):
                left = _spread(builder, builder.sub(d, k), ir.VectorType(d.type, LANES))
                lanes = ir.Constant(left.type, list(range(LANES)))
                step(k, builder.icmp_unsigned("<", lanes, left))


def _load(builder, data, index, mask):
    """Load numbers as doubles; those outside of the mask are zero, and not read."""
    kind = ir.VectorType(data.type.pointee, LANES)
    address = builder.bitcast(builder.gep(data, [index]), kind.as_pointer())
    if mask is None:
        vector = builder.load(address, align=_itemsize(data))
    else:
        name = f"llvm.masked.load.v{LANES}f{8 * _itemsize(data)}.p0"
        function = ir.FunctionType(kind, [address.type, I32, BITS, kind])
        function = cgutils.get_or_insert_function(builder.module, function, name)
        zeros = ir.Constant(kind, None)
        vector = builder.call(function, [address, I32(_itemsize(data)), mask, zeros])
    return vector if kind == DOUBLES else builder.fpext(vector, DOUBLES)


def _sum_lanes(builder, vectors):
    """Sum the lanes of four vectors, as one vector of four numbers."""

    def pairs(a, b, even, odd):
        picks = [
            builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 4), p)) for p in (even, odd)
        ]
        return builder.fadd(*picks)

    halves = [pairs(v, v, [0, 1, 2, 3], [4, 5, 6, 7]) for v in vectors]
    low = pairs(halves[0], halves[1], [0, 4, 2, 6], [1, 5, 3, 7])
    high = pairs(halves[2], halves[3], [0, 4, 2, 6], [1, 5, 3, 7])
    return pairs(low, high, [0, 1, 4, 5], [2, 3, 6, 7])


def _spread(builder, value, kind):
    """Return a vector with the same number in every lane."""
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, value, I32(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count)
    )


def _prefetch(builder, data, index):
    """Prefetch to the second-level cache: a core can wait for more lines there than in the first.

    ``data`` is a pointer to numbers.
    """
    byte_pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte_pointer, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    address = builder.bitcast(builder.gep(data, [index]), byte_pointer)
    builder.call(function, [address, I32(0), I32(2), I32(1)])


def _data(context, builder, signature, args, k):
    return context.make_array(signature.args[k])(context, builder, args[k]).data


def _itemsize(data):
    return 4 if isinstance(data.type.pointee, ir.FloatType) else 8

"""Collectives exchange sums, bytes and errors, whatever sums their arrays."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from paths import printed
from scipy import sparse
from thread_ranks import on_ranks

from counterpoise import Collective
from counterpoise.rows import collective as module
from counterpoise.rows.collective import CollectiveError, in_order
from counterpoise.rows.parcels import from_parcel, to_parcel


def values_of(rank, size=257):
    return np.random.default_rng(rank).normal(size=size) * 10.0**rank


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (40, 10), (0, 5)])
def test_sums_are_the_same_bits_on_all_ranks_and_ways(native, shape, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 50)
    count = int(np.prod(shape))
    parts = [values_of(rank, count).reshape(shape) for rank in range(3)]
    found = on_ranks(3, lambda c: c.sum(parts[c.rank]), native=native)
    expected = (parts[0] + parts[1]) + parts[2]
    for one in found:
        assert one.shape == shape
        np.testing.assert_array_equal(one, expected)


def test_the_order_depends_only_on_the_number_of_ranks():
    parts = np.array([values_of(rank, 40) for rank in range(7)])
    a = (parts[0] + parts[1]) + (parts[2] + parts[3])
    b = (parts[4] + parts[5]) + parts[6]
    np.testing.assert_array_equal(in_order(parts), a + b)


def test_zeros_have_no_sign():
    (found,) = on_ranks(1, lambda c: c.sum(np.array([-0.0])))
    assert not np.signbit(found).any()


def test_infinite_sums_stay_on_their_place():
    found = on_ranks(2, lambda c: c.gather(np.array([np.inf if c.rank else 1.0, np.nan, -2.0])))
    np.testing.assert_array_equal(found[0], [[1.0, np.nan, -2.0], [np.inf, np.nan, -2.0]])


@pytest.mark.parametrize("native", [False, True])
def test_bytes_of_any_length(native):
    sent = [b"", bytes(range(256)) * 5, b"\0\xff\0"]
    found = on_ranks(3, lambda c: c.gather_bytes(sent[c.rank]), native=native)
    assert found == [sent] * 3
    assert on_ranks(2, lambda c: c.gather_bytes(b""), native=native) == [[b"", b""]] * 2


def test_all_ranks_raise_the_error_of_one():
    def work(c):
        def fail():
            if c.rank == 1:
                raise ValueError("tol must be positive")
            return c.rank

        return c.attempt("checking", fail)

    found = on_ranks(3, work)
    assert [type(one) for one in found] == [ValueError] * 3
    assert {str(one) for one in found} == {"rank 1 of 3: tol must be positive"}
    assert isinstance(found[1].__cause__, ValueError)


def test_other_types_of_errors_are_named():
    def work(c):
        return c.attempt("dividing", lambda: 1 / c.rank)

    found = on_ranks(2, work)
    assert [type(one) for one in found] == [RuntimeError] * 2
    assert str(found[1]) == "rank 0 of 2: ZeroDivisionError: division by zero"


def test_ranks_out_of_step_say_what_each_does():
    found = on_ranks(2, lambda c: c.meet("fitting" if c.rank else "writing"))
    for one in found:
        assert isinstance(one, CollectiveError)
        assert "rank 0: writing, rank 1: fitting" in str(one)
    for one in on_ranks(2, lambda c: c.meet("asking", signature=c.rank)):
        assert isinstance(one, CollectiveError)
    for one in on_ranks(2, lambda c: c.meet("asking", shape=(c.rank,))):
        assert isinstance(one, CollectiveError)


def test_a_rank_without_a_shape_learns_it():
    found = on_ranks(3, lambda c: c.meet("asking", shape=(4, 2) if c.rank == 2 else None))
    assert found == [(4, 2)] * 3


def test_an_average_is_not_a_sum():
    mean = Collective(lambda values: values / 2, rank=0, size=2)
    with pytest.raises(CollectiveError, match="must return the sum over all ranks"):
        mean.gather(np.zeros(3))


def test_a_failing_library_is_a_lost_rank():
    def broken(values):
        raise ConnectionResetError("Connection reset by peer\nframe #0")

    lost = Collective(broken, rank=0, size=2)
    with pytest.raises(CollectiveError, match=r"rank 0 of 2 cannot reach the others .*by peer\)"):
        lost.sum(np.ones(3))
    short = Collective(lambda values: values[:1], rank=0, size=2)
    with pytest.raises(CollectiveError, match="of shape"):
        short.sum(np.ones(3))


def test_sums_in_single_precision_are_refused():
    single = Collective(lambda values: values.astype(np.float32), rank=0, size=1)
    with pytest.raises(CollectiveError, match="must sum and return float64"):
        single.sum(np.ones(3))


def test_an_exchange_that_mixes_up_ranks_is_noticed():
    def work(c):
        gather = c._allgather
        wrong = Collective(
            None, rank=c.rank, size=c.size, allgather=gather,
            alltoall=lambda values: gather(values)[c.rank],
        )  # fmt: skip
        return wrong.gather(np.ones(2))

    for found in on_ranks(3, work, native=True):
        assert isinstance(found, CollectiveError)
        assert "from alltoall" in str(found)


def test_a_function_may_use_its_memory_again(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 2)
    memory = np.empty(64)

    def allreduce(values):
        memory[: len(values)] = values
        return memory[: len(values)]

    alone = Collective(allreduce, rank=0, size=1)
    np.testing.assert_array_equal(alone.gather(np.arange(6.0)), [np.arange(6.0)])


def test_ranks_say_if_what_they_were_told_differs():
    found = on_ranks(2, lambda c: c.attempt("checking", lambda: 7, ["nu", 0.1 * c.rank]))
    assert [type(one) for one in found] == [CollectiveError] * 2
    assert on_ranks(2, lambda c: c.attempt("checking", lambda: 7, ["nu"])) == [7, 7]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(allreduce=None, rank=0, size=1), TypeError, "allreduce is None"),
        (dict(allreduce=3, rank=0, size=1), TypeError, "allreduce must be a function; got int"),
        (dict(allreduce=sum, rank=2, size=2), ValueError, "got rank=2 and size=2"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Collective(**arguments)


def test_parcels_keep_values_and_types():
    labels = np.array([dt.date(2024, 1, 2), dt.date(2025, 1, 2)], dtype=object)
    matrix = sparse.random(6, 4, 0.5, format="csr", rng=np.random.default_rng(0))
    given = {
        "labels": labels, "text": np.array(["ä", "longer"]), "X": matrix, "none": None,
        "numbers": [1, 2.5, float("inf"), np.float64(0.1)], "empty": np.zeros((0, 3)),
    }  # fmt: skip
    found = from_parcel(to_parcel(given))
    assert found["labels"].tolist() == labels.tolist()
    assert found["text"].tolist() == ["ä", "longer"]
    assert found["numbers"] == [1, 2.5, float("inf"), 0.1]
    assert found["none"] is None
    assert found["empty"].shape == (0, 3)
    assert (found["X"] != matrix).nnz == 0


def test_importing_imports_no_library():
    code = (
        "import sys; from counterpoise import Collective; "
        "print([n for n in ('torch', 'mpi4py', 'dask', 'ray') if n in sys.modules])"
    )
    assert printed(code) == "[]"


def test_torch_without_a_process_group():
    with pytest.raises(RuntimeError, match="init_process_group"):
        Collective.torch()

"""Which errors mean that another rank is gone."""

import pytest
import torch.distributed as dist

from counterpoise.torch.distributed import (
    FirstRankFailed,
    LostRank,
    is_lost_rank,
    naming_lost_ranks,
)

INVALID = """NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3690, invalid usage (run with NCCL_DEBUG)
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9"),
        RuntimeError("[/third_party/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting"),
        dist.DistBackendError("NCCL error: remote process exited or there was a network error"),
        dist.DistNetworkError("Failed to recv, got 0 bytes"),
    ],
)
def test_lost(error):
    assert is_lost_rank(error)
    with pytest.raises(LostRank) as found, naming_lost_ranks("training"):
        raise error
    assert str(error)[:60] in str(found.value)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("'/data/gloom/x' does not exist"),
        RuntimeError("ncclx is not installed"),
        FirstRankFailed("the first rank failed: OSError: Connection refused"),
        FirstRankFailed("the first rank failed: ValueError: '/data/gloo/x' does not exist"),
        dist.DistBackendError(INVALID),
        ValueError("Connection refused"),
        LostRank("rank 1 of 2 is gone"),
    ],
)
def test_not_lost(error):
    assert not is_lost_rank(error)
    with pytest.raises(type(error)) as found, naming_lost_ranks("training"):
        raise error
    assert found.value is error

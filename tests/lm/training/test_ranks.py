"""How ranks meet, and what they make of errors."""

import socket

import pytest

from counterpoise.lm.training.ranks import join_ranks
from counterpoise.torch.distributed import LostRank


def one_of_two(monkeypatch, port, rank="0"):
    chosen = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)


def test_a_port_that_is_taken_is_named_at_once(monkeypatch):
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        one_of_two(monkeypatch, port)
        message = f"could not meet through rank 0 at 127.0.0.1:{port}: .*another MASTER_PORT"
        with pytest.raises(LostRank, match=message) as found, join_ranks(None, 600.0):
            pass
    assert "within" not in str(found.value)


def test_ranks_that_are_too_late_are_told_the_time(monkeypatch):
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
    one_of_two(monkeypatch, port, rank="1")  # and the first never comes
    message = r"did not meet within 1 s \(train.timeout\)"
    with pytest.raises(LostRank, match=message), join_ranks(None, 1.0):
        pass

"""Token ids that exist already, as a corpus."""

import numpy as np
import pytest

from counterpoise.lm import prepare, write_tokens


def test_ids_that_exist_become_a_corpus(tmp_path):
    documents = {
        "a": {"train": [[1, 2], [3]], "held": [[4]]},
        "b": {"train": iter([np.array([5, 6, 7])]), "held": [np.zeros(0, dtype=int), []]},
    }
    corpus = write_tokens(documents, tmp_path / "c", vocab_size=70_000, end=9)
    assert corpus.domains == ["a", "b"]
    assert corpus.splits == ["train", "held"]
    assert corpus["a"].read(0, 5).tolist() == [1, 2, 9, 3, 9]
    assert corpus["a"].document(1).tolist() == [3, 9]
    assert corpus.tokens("b", "held").n_documents == 0
    assert corpus["a"].dtype.itemsize == 4
    assert write_tokens({"a": [[1]]}, tmp_path / "d", vocab_size=9, end=0)["a"].dtype.itemsize == 2


def test_ids_are_checked_and_nothing_is_half_written(tmp_path):
    for documents, message in [
        ({"a": [[1], [12]]}, "document 1 of domain 'a'"),
        ({"a": [[-1]]}, "whole numbers from 0 to vocab_size - 1 = 9"),
        ({"a": [[0.5]]}, "whole numbers"),
        ({"a": [[1], [[2]]]}, "document 1"),
        ({"a": np.arange(5)}, "must be a list of whole"),
        ({"a": []}, "has no documents"),
        ({"../evil": [[1]]}, "cannot name a domain"),
        ({"a": {"train": [[1]]}, "b": {"test": [[1]]}}, "give all domains the same"),
    ]:
        with pytest.raises(ValueError, match=message):
            write_tokens(documents, tmp_path / "c", vocab_size=10, end=0)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="at least one"):
        write_tokens({}, tmp_path / "c", vocab_size=10, end=0)
    with pytest.raises(ValueError, match="vocab_size must be between 1 and"):
        write_tokens({"a": [[1]]}, tmp_path / "c", vocab_size=2**33, end=0)
    write_tokens({"a": [[1]]}, tmp_path / "c", vocab_size=10, end=0)
    with pytest.raises(FileExistsError, match="choose another folder"):
        write_tokens({"a": [[1]]}, tmp_path / "c", vocab_size=10, end=0)


def test_prepare_does_not_mix_itself_in(tmp_path):
    write_tokens({"a": [[1]]}, tmp_path / "c", vocab_size=10, end=0)
    (tmp_path / "b.txt").write_text("text")
    with pytest.raises(ValueError, match="tokenizer"):
        prepare({"b": tmp_path / "b.txt"}, tmp_path / "c", tokenizer="bytes", progress=False)

"""Clusters of documents: found again where they were made, the same for the same seed."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

from counterpoise.lm import cluster, cluster_documents, embed, prepare, read_documents
from counterpoise.lm.corpus.clusters import _sampled

TOPICS = (
    ["wheat", "barley", "oats", "rye", "harvest", "field", "plough"],
    ["def", "return", "import", "class", "lambda", "yield", "raise", "(", ")", ":"],
    ["violin", "cello", "sonata", "tempo", "forte", "quartet", "opus"],
)


def topics(n=300, seed=0):
    """Texts of three topics with few words in common, and the topic of each."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    shared = ["the", "of", "and"]
    texts = [
        " ".join(rng.choice(TOPICS[t] + shared, size=rng.integers(20, 60))) + f" {i}"
        for i, t in enumerate(truth)
    ]
    return texts, truth


def agree(labels, truth):
    """Whether labels are the truth but for their names."""
    pairs = set(zip(np.asarray(labels).tolist(), np.asarray(truth).tolist(), strict=True))
    return len(pairs) == len(set(truth)) == len({label for label, _ in pairs})


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_centres_that_are_far_apart_are_found(tmp_path):
    rng = np.random.default_rng(1)
    truth = rng.choice(4, size=9000, p=[0.4, 0.3, 0.2, 0.1])
    vectors = rng.normal(size=(9000, 5)) + 20 * np.eye(5)[truth]
    labels = cluster(vectors, 4, seed=3)
    np.testing.assert_array_equal(labels, truth)  # the largest is the first
    with threadpool_limits(2):
        np.testing.assert_array_equal(labels, cluster(vectors, 4, seed=3))
    mapped = np.memmap(tmp_path / "v", dtype=np.float64, mode="w+", shape=vectors.shape)
    mapped[:] = vectors
    np.testing.assert_array_equal(cluster(mapped, 4, seed=3), labels)


def test_words_tell_topics_apart():
    texts, truth = topics()
    vectors = embed(texts, size=8)
    assert vectors.shape == (300, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)
    np.testing.assert_array_equal(vectors, embed(texts, size=8))
    assert agree(cluster(vectors, 3), truth)
    assert embed(["one", "two"], size=8).shape == (2, 2)


def test_labelled_documents_become_domains(tmp_path):
    """From a file to a corpus with a domain for every cluster, and nothing is lost."""
    texts, truth = topics()
    rows = [{"id": i, "text": text, "meta": {"t": int(truth[i])}} for i, text in enumerate(texts)]
    path = lines(tmp_path / "in.jsonl", [*rows, {"text": " "}])
    out = tmp_path / "out.jsonl"
    counts = cluster_documents(path, out, 3, size=8)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{k: row[k] for k in ("id", "text", "meta")} for row in found] == rows
    labels = [row["cluster"] for row in found]
    assert agree(labels, truth)
    assert counts == {k: labels.count(k) for k in range(3)}
    before = out.read_bytes()
    assert cluster_documents(path, out, 3, size=8) == counts
    assert out.read_bytes() == before
    made = prepare(
        {"web": out}, tmp_path / "corpus", tokenizer="bytes", by="cluster", progress=False
    )
    assert made.domains == ["web-0", "web-1", "web-2"]
    assert [made[name].n_documents for name in made.domains] == list(counts.values())


def test_clusters_of_a_sample_label_everything(tmp_path, monkeypatch):
    """From a table, with embeddings of one's own."""
    texts, truth = topics(500)
    pq.write_table(pa.table({"body": texts}), tmp_path / "in.parquet")
    seen = []

    def own(texts):
        seen.append(len(texts))
        return np.array([[sum(w in t for w in topic) for topic in TOPICS] for t in texts])

    monkeypatch.setattr("counterpoise.lm.corpus.clusters.BATCH", 128)
    out = tmp_path / "out.jsonl"
    cluster_documents(
        tmp_path / "in.parquet", out, 3, text="body", field="topic", embed=own, sample=40
    )
    assert seen == [40, 128, 128, 128, 116]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert agree([row["topic"] for row in rows], truth)
    assert list(read_documents(out, "body")) == texts


def test_a_sample_does_not_depend_on_order_or_repeats():
    texts = [f"text {i}" for i in range(200)]
    some = _sampled(iter(texts), 20, seed=1)
    assert len(some) == len(set(some)) == 20
    assert _sampled(iter(texts[::-1] + texts), 20, seed=1) == some
    assert _sampled(iter(texts), 20, seed=2) != some
    assert sorted(_sampled(iter(texts * 2), 500, seed=1)) == sorted(texts)
    drawn = [int(t.split()[1]) for s in range(50) for t in _sampled(iter(texts), 20, seed=s)]
    assert abs(np.mean(drawn) - 99.5) < 6  # four standard errors


def test_a_failure_leaves_the_old_file(tmp_path):
    path = lines(tmp_path / "in.jsonl", [{"text": t} for t in topics(30)[0]])
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    calls = []

    def failing(texts):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("out of memory")
        return np.ones((len(texts), 2))

    with pytest.raises(RuntimeError, match="out of memory"):
        cluster_documents(path, out, 1, embed=failing)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_a_source_is_not_overwritten_however_its_path_is_written(tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a b"}\n{"text": " "}\n')
    monkeypatch.chdir(tmp_path)
    for source, out in (
        ("in.jsonl", path),
        (path, "in.jsonl"),
        (path, "../" + tmp_path.name + "/in.jsonl"),
    ):
        with pytest.raises(ValueError, match="is one of the files to read"):
            cluster_documents(source, out, 1)
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be a whole number >= 1; got 0"),
        ({"k": 9}, "k=9 is more than the 5 different documents of the sample"),
        ({"k": 9, "sample": 3}, "k=9 clusters cannot be found in sample=3"),
        ({"out": "out.csv"}, "must end in .jsonl"),
        ({"out": "in.jsonl"}, "is one of the files to read"),
        ({"field": "text"}, "has a field 'text' already; name another with field="),
        ({"embed": lambda texts: np.ones((1, 2))}, "embed returned 1 vectors for 5 texts"),
        ({"embed": lambda texts: np.ones(5)}, r"a row for each text; got shape \(5,\)"),
    ],
)
def test_what_cannot_be_clustered_is_refused(tmp_path, options, message):
    path = lines(tmp_path / "in.jsonl", [{"text": f"text {i}"} for i in range(5)])
    chosen = {"k": 2, "out": "out.jsonl"} | options
    out, k = tmp_path / chosen.pop("out"), chosen.pop("k")
    with pytest.raises(ValueError, match=message):
        cluster_documents(path, out, k, **chosen)

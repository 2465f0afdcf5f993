import json
import logging
import math
import shutil
import socket
from dataclasses import replace

import datasets
import huggingface_hub
import numpy as np
import pytest
from lm_problems import small_llama
from lm_tasks import (
    WORDS,
    byte_tokenizer,
    loglikelihood,
    save_task_files,
    unigram_llama,
    unigram_loglikelihood,
)

from counterpoise.lm import PAPER_TASKS, Task, evaluate_tasks, get_task
from counterpoise.lm.tasks import evaluate
from counterpoise.lm.tasks.catalog import TASKS
from counterpoise.lm.tasks.harness import _manager, load
from counterpoise.lm.tasks.local import INDEX, task_files
from counterpoise.lm.tasks.scores import Score, TasksFailed, average

pytestmark = pytest.mark.slow  # imports torch and transformers

LIKES_A = {"a": 6.0, "b": 2.0}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        tried.append(args)
        raise OSError("no network in tests")

    tried = []
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not tried


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_task_files(tmp_path_factory.mktemp("tasks") / "with [brackets] *")


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def unigram(tokenizer):
    return unigram_llama(tokenizer, LIKES_A)


def load_local(name, data, **settings):
    task = get_task(name, **settings)
    return load(task, task_files(data)[task.harness])


def read(data, name):
    return [json.loads(line) for line in (data / name).read_text().splitlines()]


class TestLocalFiles:
    def test_a_folder_that_0_1_wrote(self, tmp_path):
        """Its index, with the scored split first."""
        files = {"test": "arc_easy.test.jsonl", "train": "arc_easy.train.jsonl"}
        index = {"ARC-E": {"harness": "arc_easy", "files": files, "rows": {"test": 1, "train": 1}}}
        table = {"format": "counterpoise tasks", "version": 1, "tasks": index}
        (tmp_path / INDEX).write_text(json.dumps(table))
        for name in files.values():
            (tmp_path / name).touch()
        expected = {split: tmp_path.resolve() / name for split, name in files.items()}
        assert task_files(tmp_path) == {"arc_easy": expected}
        assert list(task_files(tmp_path)["arc_easy"]) == ["test", "train"]

    def test_what_is_missing_or_broken_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"has no tasks\.json; give a folder of task"):
            task_files(tmp_path)
        save_task_files(tmp_path)
        (tmp_path / "sciq.validation.jsonl").unlink()
        with pytest.raises(FileNotFoundError, match=r"sciq\..*'SciQ' is missing; make the folder"):
            task_files(tmp_path)
        (tmp_path / INDEX).write_text("{")
        with pytest.raises(ValueError, match=r"is not JSON.*make the folder anew"):
            task_files(tmp_path)


class TestChoosing:
    def test_every_task_and_its_metric_are_the_harness_s(self):
        assert len(PAPER_TASKS) == 11
        for task in TASKS.values():
            entry = _manager(task.folder).task_index[task.harness]
            assert task.metric in [m["metric"] for m in entry.cfg["metric_list"]], task

    def test_settings_are_replaced(self):
        task = get_task("ARC-C", shots=0, limit=3)
        assert task == replace(get_task("ARC-C"), shots=0, limit=3)
        assert (task.harness, task.metric) == ("arc_challenge", "acc_norm")
        assert get_task(task, metric="acc").metric == "acc"

    def test_a_name_of_the_harness_has_its_settings(self):
        assert get_task("hellaswag") == Task("hellaswag", "hellaswag", folder="hellaswag")
        assert get_task("mmlu_anatomy") == Task("mmlu_anatomy", "mmlu_anatomy")

    @pytest.mark.parametrize(
        ("settings", "text"), [({"shots": -1}, "'PIQA': shots must"), ({"limit": 0}, "limit must")]
    )
    def test_wrong_settings(self, settings, text):
        with pytest.raises(ValueError, match=text):
            get_task("PIQA", **settings)

    def test_what_is_no_task(self, unigram, tokenizer):
        with pytest.raises(TypeError, match="a name or a Task; got 3"):
            get_task(3)
        with pytest.raises(TypeError, match="tasks must be names or Tasks; got 3"):
            evaluate_tasks(unigram, tokenizer, 3)
        with pytest.raises(ValueError, match="at least one task"):
            evaluate_tasks(unigram, tokenizer, [])

    def test_unavailable_tasks_are_named(self, unigram, tokenizer, data):
        with pytest.raises(
            ValueError, match=r"data=.* lacks the tasks \['WSC', 'LAMBADA', 'TruthfulQA'\]"
        ):
            evaluate_tasks(unigram, tokenizer, data=data)
        with pytest.raises(ValueError, match=r"lacks the tasks \['WSC'\]"):
            evaluate_tasks(unigram, tokenizer, "WSC", data=data, available_only=True)

    def test_groups_are_not_tasks(self):
        with pytest.raises(ValueError, match="'ai2_arc' is a tag of several tasks"):
            load(Task("ai2_arc", "ai2_arc", folder="arc"))


class TestScores:
    def test_the_likeliest_answer_counts(self, unigram, tokenizer, data):
        """Sums of the bytes' logarithms for acc; divided by the answer's length for acc_norm."""
        rows = read(data, "arc_easy.test.jsonl")
        for metric, length in (("acc", lambda text: 1), ("acc_norm", len)):
            right = []
            for row in rows:
                found = [
                    unigram_loglikelihood(f" {text}", LIKES_A, len(tokenizer)) / length(text)
                    for text in row["choices"]["text"]
                ]
                gold = row["choices"]["label"].index(row["answerKey"])
                right.append(float(np.argmax(found) == gold))
            (score,) = evaluate_tasks(
                unigram, tokenizer, get_task("ARC-E", metric=metric), data=data, batch_size=3
            )
            error = np.std(right, ddof=1) / math.sqrt(4)
            assert score == Score(
                "ARC-E", metric, np.mean(right), pytest.approx(error), 0, 4, "local", "test", None
            )
            assert 0 < score.value < 1
            assert json.loads(json.dumps(score.row()))["n"] == 4

    def test_a_model_that_knows_the_answers_is_always_right(self, unigram, tokenizer, data):
        names = ["SciQ", "LogiQA"]
        sciq, logiqa = evaluate_tasks(unigram, tokenizer, names, data=data)
        assert (sciq.value, sciq.stderr, sciq.split) == (1.0, 0.0, "validation")
        assert (logiqa.value, logiqa.split) == (0.5, "evals")  # the answer is A every other time
        assert average([sciq, logiqa]) == 0.75
        hates = unigram_llama(tokenizer, {"a": -5.0})
        assert evaluate_tasks(hates, tokenizer, "SciQ", data=data)[0].value == 0.0

    def test_any_model_scores_as_by_its_own_likelihoods(self, tokenizer, data):
        model = small_llama(len(tokenizer), seed=3, length=4096)
        right = {"acc": [], "acc_norm": []}
        for row in read(data, "piqa.validation.jsonl"):
            context = f"Question: {row['goal']}\nAnswer:"
            answers = [row["sol1"], row["sol2"]]
            found = [loglikelihood(model, tokenizer, context, f" {a}") for a in answers]
            right["acc"].append(np.argmax(found) == row["label"])
            each = [f / len(a) for f, a in zip(found, answers, strict=True)]
            right["acc_norm"].append(np.argmax(each) == row["label"])
        for metric, values in right.items():
            task = get_task("PIQA", metric=metric)
            (score,) = evaluate_tasks(model, tokenizer, task, data=data, batch_size=2)
            assert (score.value, score.n) == (pytest.approx(np.mean(values)), 5)

    def test_limits(self, unigram, tokenizer, data):
        tasks = ["SciQ", get_task("PIQA", limit=1)]
        sciq, piqa = evaluate_tasks(unigram, tokenizer, tasks, data=data, limit=2)
        assert (sciq.n, piqa.n, piqa.stderr) == (2, 1, None)

    def test_model_and_tokenizer_are_left_as_they_were(self, tokenizer, data):
        model = small_llama(len(tokenizer), length=512).train()
        model.model.layers[0].eval()
        evaluate_tasks(model, tokenizer, "SciQ", data=data, limit=1)
        assert model.training
        assert not model.model.layers[0].training
        assert tokenizer.pad_token is None

    def test_tasks_that_are_not_there_may_be_left_out(self, unigram, tokenizer, data, caplog):
        with caplog.at_level(logging.WARNING, "counterpoise"):
            scores = evaluate_tasks(
                unigram, tokenizer, ["WSC", "SciQ", "LAMBADA"], data=data, limit=1,
                available_only=True,
            )  # fmt: skip
        assert [s.task for s in scores] == ["SciQ"]
        assert "WSC, LAMBADA" in caplog.text

    def test_a_name_of_the_harness_takes_local_data_too(self, unigram, tokenizer, data):
        (score,) = evaluate_tasks(unigram, tokenizer, "sciq", data=data, limit=1)
        assert (score.task, score.metric, score.shots, score.source) == ("sciq", "acc", 0, "local")

    def test_wrong_arguments(self, unigram, tokenizer, data):
        with pytest.raises(ValueError, match="'PIQA' has no metric 'f1'; it has 'acc', 'acc_norm'"):
            evaluate_tasks(unigram, tokenizer, get_task("PIQA", metric="f1"), data=data)
        with pytest.raises(ValueError, match="batch_size must be"):
            evaluate_tasks(unigram, tokenizer, "PIQA", data=data, batch_size=0)
        with pytest.raises(ValueError, match="limit must be"):
            evaluate_tasks(unigram, tokenizer, "PIQA", data=data, limit=0.5)
        with pytest.raises(TypeError, match=r"model of transformers; got 'gpt2'. Load one with"):
            evaluate_tasks("gpt2", tokenizer, "PIQA", data=data)
        with pytest.raises(TypeError, match="tokenizer must be"):
            evaluate_tasks(unigram, "gpt2", "PIQA", data=data)
        with pytest.raises(ValueError, match="at least one Score"):
            average([])


class TestExamples:
    def test_come_from_the_other_documents_of_the_only_split(self, data):
        loaded = load_local("HellaSwag", data, shots=6)
        docs = list(loaded.eval_docs)
        seen = set()
        for doc, word in zip(docs, WORDS, strict=True):
            *shown, own = loaded.fewshot_context(doc, 6).split("\n\n")
            assert own == f"Run: The {word}. It"
            assert len(shown) == len(set(shown)) == 6
            assert all(f"The {word}." not in text for text in shown)
            seen.update(shown)
        assert len(seen) == 8  # every document is shown before some other
        assert "Run: The owl. It a b" in seen  # cleaned by the harness

    def test_come_from_the_training_split_where_there_is_one(self, data):
        loaded = load_local("ARC-C", data, shots=3)
        text = loaded.fewshot_context(loaded.eval_docs[0], 3)
        assert text.count("Question: Where is") == 3
        assert text.endswith("\n\nQuestion: Which is owl?\nAnswer:")

    def test_are_the_same_in_every_run(self, data):
        texts = []
        for _ in range(2):
            loaded = load_local("BoolQ", data, shots=4)
            texts.append([loaded.fewshot_context(doc, 4) for doc in loaded.eval_docs])
        assert texts[0] == texts[1]

    @pytest.mark.parametrize(
        ("name", "where"),
        [("BoolQ", "train"), ("SciQ", "validation, without the scored document")],
    )
    def test_the_score_says_where_from(self, unigram, tokenizer, data, name, where):
        (score,) = evaluate_tasks(unigram, tokenizer, get_task(name, shots=2), data=data, limit=1)
        assert (score.shots, score.shots_from) == (2, where)

    @pytest.mark.parametrize(("name", "most"), [("ARC-C", 4), ("SciQ", 3)])
    def test_too_many(self, data, name, most):
        load_local(name, data, shots=most)
        with pytest.raises(ValueError, match=f"{name}.*shots={most + 1} is too many for the 4 doc"):
            load_local(name, data, shots=most + 1)

    def test_the_harness_s_own_zero_is_replaced(self, tmp_path):
        """It would ignore another number for TruthfulQA."""
        rows = [
            {"question": f"Who is {word}?", "mc1_targets": {"choices": ["a"], "labels": [1]},
             "mc2_targets": {"choices": ["a", "b"], "labels": [1, 0]}}
            for word in WORDS
        ]  # fmt: skip
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        loaded = load(get_task("TruthfulQA"), {"validation": path})
        assert loaded.config.num_fewshot == 5
        assert loaded.fewshot_context(loaded.eval_docs[0], 5).count("Q: Who is ") == 6


@pytest.mark.slow
def test_without_the_hub_the_error_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(
        ConnectionError, match=r"'PIQA': the hub's dataset could not be loaded .*; pass data=, a"
    ):
        load(get_task("PIQA"))


class TestFailures:
    """A task that cannot be scored is reported, and the others are scored."""

    def test_the_other_tasks_are_scored(self, unigram, tokenizer, data, tmp_path):
        broken = shutil.copytree(data, tmp_path / "broken")
        (broken / "piqa.validation.jsonl").write_text('{"goal": "')
        names = ["SciQ", "PIQA", "ARC-E"]
        with pytest.raises(TasksFailed, match=r"^1 task could not be scored.* PIQA: ") as failed:
            evaluate_tasks(unigram, tokenizer, names, data=broken, limit=1)
        assert list(failed.value.failures) == ["PIQA"]
        assert [score.task for score in failed.value.scores] == ["SciQ", "ARC-E"]
        whole = evaluate_tasks(unigram, tokenizer, ["SciQ", "ARC-E"], data=data, limit=1)
        assert failed.value.scores == whole

    def test_unknown_tasks_are_named_before_any_is_scored(self, unigram, tokenizer, monkeypatch):
        monkeypatch.setattr(evaluate, "load", None)
        monkeypatch.setattr(evaluate, "wrap", None)
        wrong = Task("x", "no_such_task", folder="sciq")
        with pytest.raises(ValueError, match="lm_eval has no 'no_such_task'"):
            evaluate_tasks(unigram, tokenizer, ["SciQ", wrong])

    def test_a_dataset_that_is_a_script_is_read_from_its_tables(self, monkeypatch):
        """As LogiQA's is, which datasets 4 and later refuse to run."""
        asked = []

        def load_dataset(path, name=None, *, revision=None, data_dir=None, **others):
            asked.append((path, name, revision, data_dir))
            if revision is None:
                raise RuntimeError("Dataset scripts are no longer supported, but found logiqa.py")
            rows = [{"label": "a", "context": "It rains.", "question": "Does it?",
                     "options": ["yes", "no", "so", "or"]}]  # fmt: skip
            splits = ("train", "validation", "test")
            return datasets.DatasetDict({s: datasets.Dataset.from_list(rows) for s in splits})

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        loaded = load(get_task("LogiQA"))
        assert len(loaded.eval_docs) == 1
        assert asked == [
            ("EleutherAI/logiqa", "logiqa", None, None),
            ("EleutherAI/logiqa", None, "refs/convert/parquet", "logiqa"),
        ]

    def test_a_script_without_tables(self, monkeypatch):
        def load_dataset(*args, **options):
            raise RuntimeError("Dataset scripts are no longer supported, but found logiqa.py")

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        with pytest.raises(
            ConnectionError, match=r"'LogiQA': .* pass data=, .* because datasets runs no scripts"
        ):
            load(get_task("LogiQA"))

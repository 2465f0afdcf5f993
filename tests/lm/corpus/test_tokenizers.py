"""Tokenizers of every make give the same ids as they do by themselves."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import tokenizers
import transformers
from lm_tokenizer import slow_bytes
from tokenizers import models, pre_tokenizers, processors, trainers

from counterpoise.lm import Tokenizer, get_tokenizer

TEXTS = ["the cat sat on the mat", "die Katze saß: 猫 🙂", "a <|endoftext|> b </s>", "", "x" * 300]


def train(vocab_size=300, end="<|endoftext|>"):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", end], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    return tokenizer


def lists(found):
    return [ids.tolist() for ids in found]


def plain(tokenizer, texts=TEXTS):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


# -- bytes ---------------------------------------------------------------------------------


def test_bytes_are_the_utf8_bytes():
    tokenizer = get_tokenizer("bytes")
    assert lists(tokenizer.encode_batch(TEXTS)) == [list(text.encode()) for text in TEXTS]
    assert (tokenizer.end, tokenizer.vocab_size, tokenizer.dtype) == (256, 257, np.dtype("<u2"))
    assert get_tokenizer("bytes", end=0).vocab_size == 256


# -- the package tokenizers ----------------------------------------------------------------


def test_objects_and_files_of_tokenizers_are_the_same(tmp_path):
    tokenizer = train()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    one, two = get_tokenizer(tokenizer), get_tokenizer(tmp_path / "tokenizer.json")
    kept = [TEXTS[0], TEXTS[1], TEXTS[3], TEXTS[4]]
    assert lists(one.encode_batch(kept)) == lists(two.encode_batch(kept)) == plain(tokenizer, kept)
    assert one.fingerprint == two.fingerprint
    assert one.end == two.end == tokenizer.token_to_id("<|endoftext|>") == 1
    assert one.vocab_size == tokenizer.get_vocab_size()


def test_special_tokens_in_a_text_are_text():
    tokenizer = train()
    ours = get_tokenizer(tokenizer)
    assert 1 in plain(tokenizer, [TEXTS[2]])[0]
    assert 1 not in ours.encode_batch([TEXTS[2]])[0]
    assert 1 in plain(tokenizer, [TEXTS[2]])[0], "the object that was given is left as it was"


def test_nothing_is_cut_padded_or_put_around():
    tokenizer, bare = train(), train()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(pad_id=0, pad_token="<pad>", length=50)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", 1)]
    )
    kept = [TEXTS[0], TEXTS[4]]
    assert lists(get_tokenizer(tokenizer).encode_batch(kept)) == plain(bare, kept)
    assert tokenizer.truncation is not None


def test_the_fingerprint_tells_tokenizers_apart():
    found = {
        get_tokenizer(t).fingerprint for t in (train(), train(), train(310), train(end="</s>"))
    }
    assert len(found) == 3


@pytest.mark.parametrize("name", ["<|endoftext|>", "</s>", "<eos>"])
def test_the_end_is_found_by_its_usual_names(name):
    tokenizer = train(end=name)
    assert get_tokenizer(tokenizer).end == tokenizer.token_to_id(name)


def test_the_end_that_is_asked_for_wins():
    assert get_tokenizer(train(), end="<pad>").end == 0
    assert get_tokenizer(train(), end=7).end == 7
    more = get_tokenizer(train(), end=70_000)
    assert (more.vocab_size, more.dtype) == (70_001, np.dtype("<u4"))


def test_without_an_end_there_is_a_remedy():
    tokenizer = train(end="[STOP]")
    with pytest.raises(ValueError, match=r"does not say which token ends.*pass end="):
        get_tokenizer(tokenizer)
    assert get_tokenizer(tokenizer, end="[STOP]").end == 1
    with pytest.raises(ValueError, match=r"end='nothing' is not a token"):
        get_tokenizer(tokenizer, end="nothing")
    for bad in (-1, 1.5, True):
        with pytest.raises(ValueError, match="end must be"):
            get_tokenizer(tokenizer, end=bad)


# -- transformers --------------------------------------------------------------------------


def test_transformers_folders_and_objects(tmp_path):
    inner = train(end="[STOP]")
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="[STOP]")
    wrapped.save_pretrained(tmp_path)
    kept = [TEXTS[0], TEXTS[1], TEXTS[4]]
    for spec in (wrapped, tmp_path, str(tmp_path)):
        ours = get_tokenizer(spec)
        assert lists(ours.encode_batch(kept)) == plain(inner, kept)
        assert ours.end == wrapped.eos_token_id == 1


class Spelling(transformers.PreTrainedTokenizer):
    """A tokenizer of transformers that is written in Python."""

    def __init__(self, letters="abc", **options):
        self.letters = {"</s>": 0, **{letter: i + 1 for i, letter in enumerate(letters)}}
        super().__init__(eos_token="</s>", **options)

    @property
    def vocab_size(self):
        return len(self.letters)

    def get_vocab(self):
        return dict(self.letters)

    def _tokenize(self, text, **_):
        return list(text)

    def _convert_token_to_id(self, token):
        return self.letters.get(token, 0)

    def _convert_id_to_token(self, index):
        return list(self.letters)[index]


def test_transformers_in_python():
    ours = get_tokenizer(Spelling())
    assert lists(ours.encode_batch(["abcba", ""])) == [[1, 2, 3, 2, 1], []]
    assert (ours.end, ours.vocab_size) == (0, 4)
    assert ours.fingerprint != get_tokenizer(Spelling("acb")).fingerprint


# -- functions -----------------------------------------------------------------------------


def test_functions_need_an_end_and_a_size():
    ours = get_tokenizer(slow_bytes, end=256, vocab_size=257)
    assert lists(ours.encode_batch(TEXTS)) == [list(text.encode()) for text in TEXTS]
    assert ours.end == 256
    with pytest.raises(ValueError, match=r"slow_bytes.*whose end is unknown; pass end="):
        get_tokenizer(slow_bytes, vocab_size=256)
    with pytest.raises(ValueError, match=r"whose vocab_size"):
        get_tokenizer(slow_bytes, end=256)
    with pytest.raises(ValueError, match=r"has no names; give the token's id"):
        get_tokenizer(slow_bytes, end="</s>", vocab_size=256)


def test_what_a_function_gives_is_checked():
    ours = get_tokenizer(lambda text: [5] * len(text), end=6, vocab_size=4)
    assert ours.vocab_size == 7
    with pytest.raises(ValueError, match=r"returned the id 300, .*outside of its vocabulary"):
        get_tokenizer(lambda text: [300], end=256, vocab_size=257).encode_batch(["a"])
    with pytest.raises(TypeError, match="list of integers"):
        get_tokenizer(lambda text: [0.5], end=1, vocab_size=2)


def test_functions_are_told_apart_by_what_they_do():
    def make(shift):
        return get_tokenizer(lambda text: [b + shift for b in text.encode()], end=0, vocab_size=300)

    assert make(0).fingerprint == make(0).fingerprint != make(1).fingerprint


# -- all -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["bytes", train(), pytest.param(Spelling("the cat"), id="python")], ids=type
)
def test_a_pickled_tokenizer_is_the_same(spec):
    ours = get_tokenizer(spec)
    ours.encode_batch(TEXTS)
    copy = pickle.loads(pickle.dumps(ours))
    assert lists(copy.encode_batch(TEXTS)) == lists(ours.encode_batch(TEXTS))
    known = ("name", "end", "vocab_size", "fingerprint")
    assert [getattr(copy, k) for k in known] == [getattr(ours, k) for k in known]


def test_a_tokenizer_of_ours_is_taken_as_it_is():
    ours = get_tokenizer("bytes")
    assert get_tokenizer(ours) is ours
    assert isinstance(ours, Tokenizer)
    assert get_tokenizer(ours, end=300).vocab_size == 301


def test_what_is_no_tokenizer_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gpt17' does not exist"):
        get_tokenizer("gpt17")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"is not a tokenizer\.json"):
        get_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(TypeError, match=r"tokenizer=3 is not known; give 'bytes'"):
        get_tokenizer(3)

import io
import json
import shutil
import subprocess
import sys
from copy import deepcopy

import gguf
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from lm_problems import small_llama
from lm_tasks import byte_tokenizer
from safetensors.torch import load_file, save_file

from counterpoise.lm import get_tokenizer, load_checkpoint, model_files
from counterpoise.lm.model_files import load_config, load_model, load_tokenizer

pytestmark = pytest.mark.slow  # imports torch and transformers

TEXT = "The owl runs."


def paired(weight, heads):
    """The order that GGUF has the rows of a query or key in: those that rotate together are
    neighbours."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def save_gguf(path, model, tokenizer, kind=gguf.GGMLQuantizationType.F32):
    """A LLaMA of one layer as llama.cpp has it; matrices in ``kind``."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["T h"])
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for name, tensor in model.state_dict().items():
        own = name.removesuffix(".weight").replace("model.layers.0.", "")
        target = f"{'blk.0.' if 'layers' in name else ''}{names[own]}.weight"
        values = tensor.numpy()
        if own.endswith(("q_proj", "k_proj")):
            values = paired(values, config.num_attention_heads)
        own_kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(target, gguf.quants.quantize(values, own_kind), raw_dtype=own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(model, tokenizer):
    with torch.no_grad():
        return model(torch.tensor([tokenizer.encode(TEXT)])).logits.float().numpy()


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    # blocks of quantised numbers are 32 wide
    return small_llama(len(tokenizer), width=32)


@pytest.fixture(scope="module")
def saved(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_saved_folder(model, tokenizer, saved):
    found, own = load_checkpoint(saved)
    assert not found.training
    np.testing.assert_array_equal(logits(found, own), logits(model, tokenizer))


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_another_dtype(model, tokenizer, saved, dtype):
    found, own = load_checkpoint(str(saved), dtype=dtype)
    assert {p.dtype for p in found.parameters()} == {torch.bfloat16}
    np.testing.assert_allclose(logits(found, own), logits(model, tokenizer), atol=0.02)


def test_a_gguf_file(model, tokenizer, tmp_path):
    save_gguf(tmp_path / "model.gguf", model, tokenizer)
    expected = logits(model, tokenizer)
    for spec in (tmp_path / "model.gguf", tmp_path):
        found, own = load_checkpoint(spec)
        assert own.encode(TEXT) == tokenizer.encode(TEXT)
        np.testing.assert_allclose(logits(found, own), expected, atol=1e-6)
    # and texts can be prepared with its tokenizer
    ids = get_tokenizer(tmp_path / "model.gguf").encode_batch([TEXT])[0]
    assert ids.tolist() == tokenizer.encode(TEXT, add_special_tokens=False)


def test_quantised_tensors_are_dequantised(model, tokenizer, tmp_path):
    save_gguf(tmp_path / "m.gguf", model, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    found, own = load_checkpoint(tmp_path)
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    difference = np.abs(logits(found, own) - logits(model, tokenizer)).max()
    assert 0 < difference < 0.01


QUERIES = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copied")


def save_weights(folder, weights):
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class TestWeights:
    """All of a model's weights come from its files."""

    def test_one_that_is_missing(self, copied):
        weights = load_file(copied / "model.safetensors")
        del weights[QUERIES]
        save_weights(copied, weights)
        with pytest.raises(ValueError, match=rf"copied' has no weights for \['{QUERIES}'\]; its"):
            load_model(copied)
        save_weights(copied, {"lm_head.weight": weights["lm_head.weight"]})
        with pytest.raises(ValueError, match=r"has no weights for \[.*\] and 6 more; its files"):
            load_model(copied)

    def test_a_head_of_its_own_and_one_that_is_tied(self, model, tmp_path):
        config = deepcopy(model.config)
        config.tie_word_embeddings = True
        tied = type(model)(config).eval()
        tied.save_pretrained(tmp_path)
        assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
        found = load_model(tmp_path)
        assert found.lm_head.weight is found.model.embed_tokens.weight
        for name, weight in tied.state_dict().items():
            torch.testing.assert_close(found.state_dict()[name], weight, rtol=0, atol=0)
        about = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(about | {"tie_word_embeddings": False}))
        with pytest.raises(ValueError, match=r"has no weights for \['lm_head.weight'\]"):
            load_model(tmp_path)

    def test_another_shape(self, copied):
        weights = load_file(copied / "model.safetensors")
        save_weights(copied, weights | {QUERIES: weights[QUERIES][:8].clone()})
        with pytest.raises(
            ValueError, match=rf"of other shapes: {QUERIES} \(8, 32\), not \(32, 32\); its files"
        ):
            load_model(copied)

    @pytest.mark.parametrize("left", [-500, 5])
    def test_a_file_that_is_cut_off(self, copied, left):
        path = copied / "model.safetensors"
        path.write_bytes(path.read_bytes()[:left])
        with pytest.raises(ValueError, match=r"safetensors are damaged .*download them again"):
            load_model(copied)

    def test_pickles_are_not_read(self, model, copied, tmp_path):
        (copied / "model.safetensors").unlink()
        torch.save(model.state_dict(), copied / "pytorch_model.bin")
        with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin, a pickle, is not read"):
            load_model(copied)

    def test_models_of_the_hub(self, model, copied, tmp_path, monkeypatch):
        """From its cache, as there is no network: a weight is missing, another has pickles only."""
        weights = load_file(copied / "model.safetensors")
        del weights[QUERIES]
        save_weights(copied, weights)
        for name in ("lacks", "pickled"):
            cache = tmp_path / f"hub/models--owner--{name}"
            (cache / "refs").mkdir(parents=True)
            (cache / "refs/main").write_text("0" * 40)
            shutil.copytree(copied, cache / "snapshots" / ("0" * 40))
        (cache / "snapshots" / ("0" * 40) / "model.safetensors").unlink()
        torch.save(model.state_dict(), cache / "snapshots" / ("0" * 40) / "pytorch_model.bin")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ValueError, match=rf"'owner/lacks' has no weights for \['{QUERIES}'\]"):
            load_model("owner/lacks")
        with pytest.raises(FileNotFoundError, match="'owner/pickled': transformers cannot load"):
            load_model("owner/pickled")


class TestErrors:
    def test_nothing_there(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"does not exist.*'owner/name'"):
            load_checkpoint(tmp_path / "none")
        with pytest.raises(FileNotFoundError, match="does not exist"):
            load_checkpoint("model.gguf")
        with pytest.raises(FileNotFoundError, match="with safetensors nor a"):
            load_checkpoint(tmp_path)

    def test_several_files(self, tmp_path):
        for name in ("a.gguf", "b.gguf"):
            (tmp_path / name).touch()
        with pytest.raises(ValueError, match=r"2 GGUF files, \['a.gguf', 'b.gguf'\]; give"):
            load_checkpoint(tmp_path)

    def test_a_file_of_another_kind(self, tmp_path):
        (tmp_path / "model.bin").touch()
        with pytest.raises(ValueError, match=r"is not a \.gguf file"):
            load_checkpoint(tmp_path / "model.bin")

    def test_a_file_that_is_not_what_its_name_says(self, tmp_path):
        (tmp_path / "model.gguf").write_bytes(b"no model")
        with pytest.raises(ValueError, match=r"model\.gguf' has 8 bytes, too few for a GGUF file"):
            load_checkpoint(tmp_path)
        (tmp_path / "model.gguf").write_bytes(b"no model" * 8)
        with pytest.raises(ValueError, match=r"model\.gguf' is not a GGUF file"):
            load_checkpoint(tmp_path)

    def test_a_model_without_its_tokenizer(self, saved, tmp_path):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(saved / name, tmp_path)
        with pytest.raises((FileNotFoundError, ValueError), match="cannot load a tokenizer"):
            load_checkpoint(tmp_path)

    @pytest.mark.parametrize("dtype", ["float23", "int8", 16])
    def test_what_is_no_dtype(self, saved, dtype):
        with pytest.raises(ValueError, match="dtype must be a floating type of torch"):
            load_checkpoint(saved, dtype=dtype)

    @pytest.mark.parametrize("spec", [None, 3, ""])
    def test_what_is_no_spec(self, spec):
        with pytest.raises(TypeError, match="a path or a name on the hub; got"):
            load_checkpoint(spec)


EVIL = "import pathlib\npathlib.Path({marker!r}).touch()\nclass C: pass\n"
AUTO = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C", "AutoTokenizer": ["evil.C", None]}


def plant(folder, marker):
    (folder / "evil.py").write_text(EVIL.format(marker=str(marker)))


def change(path, **keys):
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


class TestCode:
    """Nothing that comes with a model runs, whatever is piped to standard input."""

    @pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
    @pytest.mark.parametrize("load", ["load_checkpoint", "get_tokenizer"])
    def test_a_folder_with_code_of_its_own(self, copied, tmp_path, file, load):
        """In a process of its own, because modules that ran once are remembered."""
        marker = tmp_path / "marker"
        plant(copied, marker)
        kind = {} if file == "tokenizer_config.json" else {"model_type": "evil"}
        change(copied / file, auto_map=AUTO, **kind)
        code = f"from counterpoise.lm import {load}; {load}({str(copied)!r})"
        done = subprocess.run(
            [sys.executable, "-c", code], input="yes\n" * 1000, capture_output=True, text=True
        )
        last = done.stderr.strip().splitlines()[-1]
        assert f"{file}': auto_map=" in last
        assert "names Python code to run, which is never done" in last
        assert "Do you wish" not in done.stdout + done.stderr
        assert not marker.exists()

    def test_a_model_from_the_command_line(self, copied, tmp_path):
        marker = tmp_path / "marker"
        plant(copied, marker)
        change(copied / "config.json", auto_map=AUTO, model_type="evil")
        config = tmp_path / "run.toml"
        config.write_text(
            f'out = "{tmp_path}/run"\n[corpus]\nfolder = "{tmp_path}/corpus"\ndomains = ["x"]\n'
            f'tokenizer = "bytes"\n[model]\ncheckpoint = "{copied}"\n[train]\ntokens = 4096\n'
        )
        words = ["counterpoise", "lm", "train", str(config), "--dry-run"]
        done = subprocess.run(
            [sys.executable, "-m", *words], input="yes\n" * 1000, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1
        assert "config.json': auto_map=" in done.stderr
        assert not marker.exists()

    @pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
    def test_a_model_of_the_hub(self, copied, tmp_path, monkeypatch, file):
        marker = tmp_path / "marker"
        plant(copied, marker)
        change(copied / file, auto_map=AUTO)
        cache = tmp_path / "hub/models--owner--evil"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs/main").write_text("0" * 40)
        shutil.copytree(copied, cache / "snapshots" / ("0" * 40))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        for load in (load_model, load_tokenizer, load_config):
            with pytest.raises(ValueError, match=f"{file}': auto_map=.* which is never done"):
                load("owner/evil")
        assert not marker.exists()

    def test_questions_are_not_asked_even_if_a_check_is_passed_over(self, copied, monkeypatch):
        """The second line of defence: transformers is told not to trust code either."""
        change(copied / "config.json", auto_map=AUTO, model_type="evil")
        monkeypatch.setattr(model_files, "check_folder", lambda folder: {})
        monkeypatch.setattr(model_files, "check_config", lambda config, file: None)
        monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n" * 10))
        with pytest.raises(ValueError, match="contains custom code"):
            load_model(copied)
        assert sys.stdin.tell() == 0

    def test_an_index_that_names_a_pickle(self, model, copied, tmp_path):
        (copied / "model.safetensors").unlink()
        torch.save(model.state_dict(), copied / "pytorch_model.bin")
        table = {
            "metadata": {},
            "weight_map": dict.fromkeys(model.state_dict(), "pytorch_model.bin"),
        }
        (copied / "model.safetensors.index.json").write_text(json.dumps(table))
        with pytest.raises(ValueError, match=r"index\.json': .* other files are pickles"):
            load_model(copied)

    def test_an_index_of_safetensors(self, model, tokenizer, copied):
        weights = load_file(copied / "model.safetensors")
        (copied / "model.safetensors").unlink()
        places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(weights)}
        for part in set(places.values()):
            chosen = {name: w for name, w in weights.items() if places[name] == part}
            save_file(chosen, copied / part, metadata={"format": "pt"})
        table = {"metadata": {"total_size": 1}, "weight_map": places}
        (copied / "model.safetensors.index.json").write_text(json.dumps(table))
        found, own = load_checkpoint(copied)
        np.testing.assert_array_equal(logits(found, own), logits(model, tokenizer))


class TestSizes:
    """A few bytes cannot ask for all memory."""

    @pytest.mark.parametrize(
        "keys",
        [
            {"num_hidden_layers": 200_000},
            {"num_hidden_layers": 300},
            {"vocab_size": 10**12},
            {"hidden_size": 10**9},
            {"intermediate_size": 10**15},
            {"head_dim": 10**9},
            {"num_labels": 10**12},
            {"hidden_size": 10**30},
        ],
    )
    def test_a_configuration_beyond_its_weights(self, copied, keys):
        change(copied / "config.json", **keys)
        with pytest.raises(ValueError, match=r"config\.json'") as found:
            load_model(copied)
        assert "\n" not in str(found.value)

    def test_a_gguf_file_beyond_its_weights(self, model, tokenizer, tmp_path):
        larger = deepcopy(model)
        larger.config.vocab_size = 10**9
        save_gguf(tmp_path / "m.gguf", larger, tokenizer)
        with pytest.raises(ValueError, match=r"m\.gguf' describes a model of .* parameters, but"):
            load_model(tmp_path)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version": 1}', b"\xff\xfe", b"{" * 9999])
def test_damaged_files_are_named(copied, file, data):
    (copied / file).write_bytes(data)
    if file == "tokenizer_config.json" and data in (b"{}", b'{"version": 1}'):
        return  # all of its keys are optional
    with pytest.raises((ValueError, FileNotFoundError), match=file) as found:
        load_checkpoint(copied)
    assert "\n" not in str(found.value)

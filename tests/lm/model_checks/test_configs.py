"""Configurations that name code, other files or absurd sizes are refused by file and key."""

import json
import os

import pytest

from counterpoise.lm.model_checks import configs
from counterpoise.lm.model_checks.configs import check_counts, check_folder, read_config

PLAIN = {"model_type": "llama", "num_hidden_layers": 2, "vocab_size": 32}
TIMM = {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc"}
PICKLE = {"checkpoint_path": "weights.pth"}
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


def save(folder, name=CONFIG, **keys):
    (folder / name).write_text(json.dumps(PLAIN | keys))
    return folder


@pytest.mark.parametrize(
    ("name", "keys", "where"),
    [
        (CONFIG, {"auto_map": {"AutoConfig": "evil.Config"}}, "auto_map="),
        (CONFIG, {"text_config": {"auto_map": {"AutoModel": "a--b.C"}}}, "text_config.auto_map="),
        (CONFIG, {"parts": [{"inner": {"auto_map": {"A": "b.C"}}}]}, "parts.0.inner.auto_map="),
        (CONFIG, {"custom_pipelines": {"evil": {"impl": "evil.P"}}}, "custom_pipelines="),
        (CONFIG, {"_attn_implementation": "owner/kernel"}, "_attn_implementation="),
        (CONFIG, {"attn_implementation": "owner/kernel@v1:fn"}, "attn_implementation="),
        (CONFIG, {"_attn_implementation": {"text_config": "a/b"}}, "_attn_implementation="),
        (CONFIG, {"_attn_implementation": "paged|a/b"}, "_attn_implementation="),
        (CONFIG, {"_attn_implementation_internal": "a/b"}, "_attn_implementation_internal="),
        (CONFIG, {"experts_implementation": "sonicmoe"}, "experts_implementation="),
        (CONFIG, {"use_kernels": True}, "use_kernels="),
        (CONFIG, {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config="),
        (CONFIG, {"transformers_weights": "adapter_model.bin"}, "transformers_weights="),
        (CONFIG, {"transformers_weights": "../model.safetensors"}, "transformers_weights="),
        (CONFIG, {"configuration_files": ["../config.4.0.json"]}, "configuration_files="),
        (CONFIG, {"tokenizer_class": "AutoModelForCausalLM"}, "tokenizer_class="),
        (CONFIG, {"vision_config": TIMM | {"model_args": PICKLE}}, "vision_config.model_args="),
        (CONFIG, {"vision_config": {"architecture": "hf-hub:a/b"}}, "vision_config.architecture="),
        (
            CONFIG,
            {"vision_config": {"architecture": "local-dir:/x"}},
            "vision_config.architecture=",
        ),
        (CONFIG, {"vision_config": {"backbone": "owner/model"}}, "vision_config.backbone="),
        (CONFIG, {"backbone": "resnet50", "backbone_kwargs": PICKLE}, "backbone="),
        (CONFIG, {"backbone_kwargs": PICKLE}, "backbone_kwargs="),
        (CONFIG, {"timm_kwargs": PICKLE}, "timm_kwargs="),
        (CONFIG, {"use_pretrained_backbone": True}, "use_pretrained_backbone="),
        (TOKENIZER, {"auto_map": ["evil.Slow", "evil.Fast"]}, "auto_map="),
        (TOKENIZER, {"tokenizer_class": "AutoModel"}, "tokenizer_class="),
        (TOKENIZER, {"tokenizer_class": "RagTokenizer"}, "tokenizer_class="),
        (TOKENIZER, {"tokenizer_class": ["LlamaTokenizer"]}, "tokenizer_class="),
        (TOKENIZER, {"init_inputs": ["/etc/passwd"]}, "init_inputs="),
        (TOKENIZER, {"fast_tokenizer_files": ["../tokenizer.4.0.json"]}, "fast_tokenizer_files="),
        ("generation_config.json", {"auto_map": {"A": "b.C"}}, "auto_map="),
        ("processor_config.json", {"auto_map": {"A": "b.C"}}, "auto_map="),
    ],
)
def test_what_would_run_code_or_read_elsewhere(tmp_path, name, keys, where):
    save(tmp_path, name, **keys)
    with pytest.raises(ValueError, match=f"{name}': {where}.* (remove the key|again|file)") as said:
        check_folder(tmp_path)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (CONFIG, {"auto_map": None, "custom_pipelines": {}, "quantization_config": None}),
        (CONFIG, {"_attn_implementation": "sdpa", "_attn_implementation_autoset": True}),
        (CONFIG, {"_attn_implementation": {"": "eager", "text_config": None}}),
        (CONFIG, {"experts_implementation": "grouped_mm", "vocab_size_per_layer_input": 262_144}),
        (CONFIG, {"max_position_embeddings": 10_000_000, "rope_theta": 5 * 10**8}),
        (CONFIG, {"vision_config": TIMM | {"model_args": None}, "backbone_hidden_size": 8}),
        (CONFIG, {"backbone": None, "use_pretrained_backbone": False, "use_timm_backbone": True}),
        (TOKENIZER, {"tokenizer_class": "LlamaTokenizerFast", "init_inputs": []}),
        (TOKENIZER, {"tokenizer_class": "TokenizersBackend", "model_max_length": 10**30}),
        (TOKENIZER, {"fast_tokenizer_files": ["tokenizer.4.0.json"]}),
        ("added_tokens.json", {"auto_map": 7}),  # a token of that name
    ],
)
def test_what_models_of_transformers_say(tmp_path, name, keys):
    found = check_folder(save(tmp_path, name, **keys))
    assert found == (PLAIN | keys if name == CONFIG else {})
    check_counts(found, tmp_path / name, tensors=20)


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ((), "needs flash-attn, which is not installed; install it, or remove the key"),
        (("flash_attn",), None),
        (("flash_attn_interface",), None),
        (("kernels",), "may fetch a kernel from the hub, which is code; remove the key, or uninst"),
        (("kernels", "flash_attn"), "may fetch a kernel from the hub"),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_flash_attention_only_where_nothing_can_be_fetched(
    tmp_path, monkeypatch, installed, said, version
):
    """With the package kernels, transformers may fetch another version than the installed one."""
    save(tmp_path, _attn_implementation=f"flash_attention_{version}")
    monkeypatch.setattr(configs, "find_spec", lambda name: name if name in installed else None)
    if said is None:
        check_folder(tmp_path)
        return
    with pytest.raises(
        ValueError, match=f"_attn_implementation='flash_attention_{version}' {said}"
    ):
        check_folder(tmp_path)


def test_adapters(tmp_path):
    save(tmp_path, "adapter_config.json", base_model_name_or_path="owner/other")
    with pytest.raises(ValueError, match=r"adapter_config.json' makes this folder an adapter"):
        check_folder(tmp_path)


@pytest.mark.parametrize("name", [CONFIG, "tokenizer.json", "model.safetensors", "vocab.txt"])
def test_only_regular_files(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}' is a named pipe, not a file; copy or download"):
        check_folder(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=f"{name}' is a device, not a file; copy or download"):
        check_folder(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=f"{name}' is a link to nothing; copy or download"):
        check_folder(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}' is a link that leads in a circle; copy or"):
        check_folder(tmp_path)


def test_links_to_regular_files_as_in_the_cache_of_the_hub(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0123").write_text(json.dumps(PLAIN))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / CONFIG).symlink_to("../blobs/0123")
    assert check_folder(tmp_path / "snapshot") == PLAIN


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", r"is not JSON \(Expecting value: line 1 column 1"),
        (b'{"a": 1', "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1]", "holds a list, not an object"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "has more than 64 levels"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
    ],
)
def test_damaged_files(tmp_path, data, problem):
    (tmp_path / CONFIG).write_bytes(data)
    with pytest.raises(ValueError, match=f"config.json' {problem}.*; copy or download it again"):
        check_folder(tmp_path)


def test_a_file_of_any_size_is_not_read(tmp_path):
    with (tmp_path / CONFIG).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"has 1,099,511,627,776 bytes, which is no config"):
        read_config(tmp_path / CONFIG)


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"num_hidden_layers": 200_000}, r"num_hidden_layers=200000 is beyond the 10,000 layers"),
        ({"text_config": {"n_layer": 10**12}}, r"text_config.n_layer=1000000000000 is beyond"),
        ({"num_labels": 10**9}, "num_labels=1000000000 is beyond the 1,048,576 labels"),
        ({"num_experts": 10**6}, r"layers times experts=2000000 is beyond the 262,144 experts"),
        ({"num_hidden_layers": 500}, r"num_hidden_layers=500, but the weights are only 20 tensors"),
    ],
)
def test_counts(tmp_path, keys, where):
    with pytest.raises(ValueError, match=f"config.json': {where}"):
        check_counts(PLAIN | keys, tmp_path / CONFIG, tensors=20)

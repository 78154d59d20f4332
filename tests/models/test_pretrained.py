"""Where pretrained weights come from: GGUF files, revisions of the Hub, safetensors alone, packages as published."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from tiny import VOCAB, tiny
from tiny_gguf import WORDS, write_tiny_gguf
from xmtc.data import pretrained
from xmtc.data.pretrained import (
    DEFAULT_BACKBONE,
    check_published,
    pretrained_source,
    resolve_pretrained,
    weights_hash,
)
from xmtc.data.tokenizer import load_pretrained
from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig


def tiny_bert(folder: Path) -> Path:
    HuggingFaceConfig(from_config=tiny("bert")).build(
        VOCAB
    ).transformer.save_pretrained(folder)
    return folder


def pickled_bert(folder: Path) -> Path:
    """A folder as it was usual before safetensors: its weights are a pickle."""
    tiny_bert(folder)
    state = AutoModel.from_pretrained(folder).state_dict()
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_a_gguf_file_has_the_states_of_the_model_that_it_holds(tmp_path, monkeypatch):
    path = tmp_path / "weights" / "tiny.gguf"
    path.parent.mkdir()
    original = write_tiny_gguf(path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.gguf").write_bytes(
        b"another file of this name in the working folder"
    )
    tokenizer = load_pretrained("weights/tiny.gguf")
    backbone = HuggingFaceConfig(name="weights/tiny.gguf").build(len(tokenizer)).eval()
    assert backbone.causal
    assert (backbone.width, backbone.window, len(backbone.layers())) == (32, 64, 3)
    ids_WU = torch.tensor([tokenizer.encode(" ".join(WORDS[:3]))])
    with torch.no_grad():
        states_WUD = backbone(ids_WU, torch.ones_like(ids_WU, dtype=torch.bool))
        expected_WUD = original(ids_WU).last_hidden_state
    torch.testing.assert_close(states_WUD, expected_WUD)


def test_a_model_from_a_gguf_file_trains_and_is_saved_as_any_other(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    vocab_size = len(load_pretrained(str(path)))
    adapted = HuggingFaceConfig(name=str(path), lora=LoraConfig(r=2)).build(vocab_size)
    ids_WU = torch.tensor([[1, 4, 5]])
    adapted(ids_WU, torch.ones_like(ids_WU, dtype=torch.bool)).square().sum().backward()
    assert all(
        "lora_" in name for name, p in adapted.named_parameters() if p.grad is not None
    )
    backbone = HuggingFaceConfig(name=str(path)).build(vocab_size)
    trained = {
        f"model.{name}": p for name, p in backbone.transformer.named_parameters()
    }
    backbone.save(tmp_path, trained, trained.keys())
    assert "quantization_config" not in json.loads(
        (tmp_path / "encoder" / "config.json").read_text()
    )
    again = HuggingFaceConfig(name=str(tmp_path / "encoder")).build(vocab_size)
    for name, parameter in again.transformer.named_parameters():
        assert torch.equal(parameter, trained[f"model.{name}"])


def test_a_gguf_file_that_changes_has_another_hash(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    before = weights_hash(str(path))
    path.write_bytes(path.read_bytes() + b"\0")
    assert before
    assert weights_hash(str(path)) not in ("", before)


def test_a_gguf_file_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    path = tmp_path / "tiny.gguf"
    with pytest.raises(ConfigError, match="no such GGUF file"):
        pretrained_source(str(path))
    path.write_bytes(b"GGUF, but not really")
    with pytest.raises(ConfigError, match="If the file is damaged"):
        HuggingFaceConfig(name=str(path)).build(VOCAB)
    with pytest.raises(ValueError, match=r"cannot read a \.gguf file"):
        HuggingFaceConfig(name=str(path), quantize="nf4", lora=LoraConfig())
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'xmtc\[gguf\]'"):
        pretrained_source(str(path))


def test_a_revision_goes_to_every_loader():
    source = pretrained_source("owner/name@0123abc")
    assert (source.location, source.options) == ("owner/name", {"revision": "0123abc"})
    assert pretrained_source("owner/name").options == {}
    assert pretrained_source("owner/name@refs/pr/1").revision == "refs/pr/1"


@pytest.mark.parametrize("name", ["owner/name@", "@main"])
def test_half_a_revision_is_refused(name):
    with pytest.raises(ConfigError, match="owner/name@revision"):
        pretrained_source(name)


def test_only_the_hub_has_revisions(tmp_path):
    folder = tiny_bert(tmp_path / "model")
    with pytest.raises(ConfigError, match="leave @main out"):
        pretrained_source(f"{folder}@main")
    assert (
        pretrained_source(str(shutil.copytree(folder, tmp_path / "model@old"))).revision
        is None
    )


def test_a_missing_model_of_the_hub_is_downloaded_in_its_revision():
    with pytest.raises(
        ConfigError, match="hf download no-such/model --revision v2 --local-dir"
    ):
        HuggingFaceConfig(name="no-such/model@v2").build(VOCAB)


def test_pickled_weights_are_refused_and_the_advice_works(tmp_path):
    folder = pickled_bert(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"a pickle, which can run code.*save_pretrained"
    ):
        HuggingFaceConfig(name=str(folder)).build(VOCAB)
    AutoModel.from_pretrained(str(folder)).save_pretrained(str(folder))
    HuggingFaceConfig(name=str(folder)).build(VOCAB)


def test_the_packaged_weights_are_those_that_were_published(tmp_path, monkeypatch):
    check_published(DEFAULT_BACKBONE)
    changed = shutil.copytree(resolve_pretrained(DEFAULT_BACKBONE), tmp_path / "model")
    weights = bytearray((changed / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (changed / "model.safetensors").write_bytes(weights)
    monkeypatch.setattr(pretrained, "resolve_pretrained", lambda name: str(changed))
    with pytest.raises(
        ConfigError, match=r"not the weights .* that its authors published"
    ):
        HuggingFaceConfig().build(30522)

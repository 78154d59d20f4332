"""States of frozen encoders by OpenVINO; all but the refusals need the extra `openvino`."""

import builtins
import json
import sys
from importlib.util import find_spec

import pytest
import torch

from tiny import FAMILIES, VOCAB, tiny, whole_documents
from xmtc.config.shape import adapter
from xmtc.errors import ConfigError
from xmtc.models.encoders import openvino_engine
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.run.config import RunConfig

needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None, reason="needs the extra openvino"
)


def backbones(family: str):
    """Return the same weights by PyTorch and by OpenVINO."""
    shape = tiny(family)
    torch.manual_seed(0)
    by_torch = HuggingFaceConfig(from_config=shape).build(VOCAB).eval()
    by_openvino = HuggingFaceConfig(from_config=shape, engine="openvino").build(VOCAB)
    by_openvino.load_state_dict(by_torch.state_dict())
    return by_torch, by_openvino.eval()


@needs_openvino
@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_pytorch(family):
    by_torch, by_openvino = backbones(family)
    for lengths in ([12, 7], [3], [30, 1, 16]):
        batch = whole_documents(lengths)
        inputs = batch.input_ids_WU, batch.attention_mask_WU
        with torch.no_grad():
            expected_WUD = by_torch(*inputs)
        got_WUD = by_openvino(*inputs)
        used_WU = batch.attention_mask_WU
        torch.testing.assert_close(
            got_WUD[used_WU], expected_WUD[used_WU], atol=1e-3, rtol=0
        )
    assert "openvino" in sys.modules
    assert sys.modules["openvino_telemetry"] is None


@needs_openvino
def test_autocast_computes_in_bfloat16():
    _, by_openvino = backbones("bert")
    batch = whole_documents([12, 12])
    inputs = batch.input_ids_WU, batch.attention_mask_WU
    exact_WUD = by_openvino(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded_WUD = by_openvino(*inputs)
    assert rounded_WUD.dtype == torch.float32
    assert 0 < (rounded_WUD - exact_WUD).abs().max() < 0.2


@needs_openvino
def test_other_states_are_refused(monkeypatch):
    _, by_openvino = backbones("bert")
    monkeypatch.setattr(openvino_engine, "_LARGEST_ERROR", -1.0)
    batch = whole_documents([3])
    with pytest.raises(ConfigError, match="other states of BertModel"):
        by_openvino(batch.input_ids_WU, batch.attention_mask_WU)


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without_openvino(name, *arguments, **options):
        if name == "openvino":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_openvino)
    monkeypatch.setitem(sys.modules, "openvino_telemetry", None)
    settings = HuggingFaceConfig(from_config=tiny("bert"), engine="openvino")
    batch = whole_documents([3])
    with pytest.raises(ConfigError, match=r"pip install 'xmtc\[openvino\]'"):
        settings.build(VOCAB)(batch.input_ids_WU, batch.attention_mask_WU)


@pytest.mark.parametrize(
    ("encoder", "finetune", "message"),
    [
        ({"lora": {}}, {}, "leave out `lora`"),
        ({"dtype": "bfloat16"}, {}, "leave out `lora` and `dtype`"),
        (
            {},
            {"phases": [{"epochs": 1, "encoder_layers": 1}]},
            "finetune.phases trains the encoder",
        ),
    ],
)
def test_what_openvino_cannot_do_is_refused(encoder, finetune, message):
    tree = {
        "name": "a",
        "data": {"source": {"kind": "pydocs"}, "corpus": "c"},
        "model": {"encoder": {"kind": "hugging_face", "engine": "openvino", **encoder}},
        "finetune": finetune,
    }
    with pytest.raises(ValueError, match=message):
        adapter(RunConfig).validate_json(json.dumps(tree))


def test_an_encoder_that_reads_single_layers_refuses_openvino():
    tree = {
        "name": "a",
        "data": {"source": {"kind": "pydocs"}, "corpus": "c"},
        "model": {"encoder": {"kind": "maxpool", "base": {"engine": "openvino"}}},
    }
    with pytest.raises(ValueError, match="no states of single layers"):
        adapter(RunConfig).validate_json(json.dumps(tree))

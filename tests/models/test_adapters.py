"""LoRA: which layers it adapts in each family, what trains, and PEFT's file layout."""

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora.layer import Linear
from transformers import AutoConfig, AutoModel

from tiny import FAMILIES, VOCAB, tiny, whole_documents
from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
from xmtc.models.encoders.lora import add_lora, infer_target_modules

_BERT = {
    "attention.output.dense",
    "attention.self.key",
    "attention.self.query",
    "attention.self.value",
}
_LLAMA = {
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
}
EXPECTED = {
    "bert": _BERT,
    "roberta": _BERT,
    "deberta": {
        "attention.self.in_proj",
        "attention.self.pos_proj",
        "attention.self.pos_q_proj",
        "attention.output.dense",
    },
    "deberta-v2": {f"attention.self.{x}_proj" for x in ("query", "key", "value")}
    | {"attention.output.dense"},
    "modernbert": {"attn.Wqkv", "attn.Wo"},
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "phi3": {"self_attn.qkv_proj", "self_attn.o_proj"},
    "phi": {
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.dense",
    },
    "gpt2": {"attn.c_attn", "attn.c_proj"},
}


def build(family: str, lora: LoraConfig):
    torch.manual_seed(0)
    return HuggingFaceConfig(from_config=tiny(family), lora=lora, dropout=0.0).build(
        VOCAB
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_adapted_and_nothing_else_trains(family):
    backbone = build(family, LoraConfig(r=4))
    assert set(backbone.model.peft_config["default"].target_modules) == EXPECTED[family]
    assert all(
        ("lora_" in n) == p.requires_grad for n, p in backbone.named_parameters()
    )
    layers = backbone.layers()
    assert len(layers) == 2
    in_layers = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    assert len(in_layers) == sum(p.requires_grad for p in backbone.parameters())
    batch = whole_documents([12, 7])
    backbone(batch.input_ids_WU, batch.attention_mask_WU).square().sum().backward()
    assert all(p.grad is not None for p in in_layers)


def test_fresh_adapters_change_nothing():
    batch = whole_documents([12, 7])
    torch.manual_seed(0)
    plain = HuggingFaceConfig(from_config=tiny("llama")).build(VOCAB).eval()
    adapted = build("llama", LoraConfig()).eval()
    with torch.no_grad():
        expected = plain(batch.input_ids_WU, batch.attention_mask_WU)
        torch.testing.assert_close(
            adapted(batch.input_ids_WU, batch.attention_mask_WU), expected
        )


def test_all_linear_adapts_the_feed_forward_layers_too():
    backbone = build("phi3", LoraConfig(target_modules="all_linear"))
    targets = {"mlp.gate_up_proj", "mlp.down_proj", *EXPECTED["phi3"]}
    assert set(backbone.model.peft_config["default"].target_modules) == targets


def test_targets_can_be_named_and_wrong_names_are_answered_with_those_there_are():
    backbone = build("llama", LoraConfig(target_modules=["v_proj"]))
    adapted = {
        n.split(".lora_")[0].rsplit(".", 1)[-1]
        for n, p in backbone.named_parameters()
        if p.requires_grad
    }
    assert adapted == {"v_proj"}
    with pytest.raises(
        ConfigError,
        match=r"target_modules \['query'\]: not in LlamaModel, which has .*q_proj",
    ):
        build("llama", LoraConfig(target_modules=["query"]))


def test_a_model_without_attention_layers_is_refused():
    with pytest.raises(
        ConfigError, match="no linear attention layers found in Sequential"
    ):
        infer_target_modules(torch.nn.Sequential(torch.nn.Linear(2, 2)))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapted_layer_computes_what_pefts_own_does(dtype, autocast):
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(16, 24, dtype=dtype))
    settings = LoraConfig(r=4, dropout=0.0, target_modules=["0"])
    layer = add_lora(plain, settings).get_base_model()[0]
    torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.1)
    x = torch.randn(2, 3, 16, dtype=dtype)

    def outcome(forward):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = forward(x)
        adapters = [*layer.lora_A.parameters(), *layer.lora_B.parameters()]
        return result, *torch.autograd.grad(result.float().square().sum(), adapters)

    found, wanted = outcome(layer), outcome(lambda x: Linear.forward(layer, x))
    tolerance = 1e-5 if dtype == torch.float32 and not autocast else 2e-2
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    layer.enable_adapters(False)
    torch.testing.assert_close(layer(x), layer.base_layer(x))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_saved_adapters_load_with_peft_alone(tmp_path):
    backbone = build("llama", LoraConfig(r=4, dropout=0.0)).eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.1)
    backbone.model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    fields = tiny("llama", vocab_size=VOCAB)
    plain = AutoModel.from_config(
        AutoConfig.for_model(fields.pop("model_type"), **fields)
    )
    loaded = PeftModel.from_pretrained(plain, str(tmp_path)).eval()
    batch = whole_documents([9])
    with torch.no_grad():
        expected = backbone(batch.input_ids_WU, batch.attention_mask_WU)
        torch.testing.assert_close(
            loaded(input_ids=batch.input_ids_WU).last_hidden_state, expected
        )

"""Hugging Face backbones: every family, windows, masks, bidirectional decoders, bad settings."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from transformers import AutoTokenizer, modeling_flash_attention_utils

from tiny import DECODERS, FAMILIES, VOCAB, tiny, whole_documents
from xmtc.data.pretrained import resolve_pretrained
from xmtc.errors import ConfigError
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import (
    HuggingFaceConfig,
    LoraConfig,
    MaxPoolConfig,
)
from xmtc.models.heads.config import FlatConfig
from xmtc.models.poolings.config import PlainPoolingConfig


def build(family: str, seed: int = 0, **settings):
    torch.manual_seed(seed)
    return HuggingFaceConfig(from_config=tiny(family), **settings).build(VOCAB)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_family_gets_a_gradient(family):
    backbone = build(family, dropout=0.0)
    batch = whole_documents([12, 7])
    hidden_WUD = backbone(batch.input_ids_WU, batch.attention_mask_WU)
    assert hidden_WUD.shape == (2, 12, backbone.width) == (2, 12, 32)
    assert backbone.window == 64
    assert len(backbone.layers()) == 3
    hidden_WUD.square().sum().backward()
    assert [n for n, p in backbone.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_its_ids_change_nothing(family):
    backbone = build(family).eval()
    alone, padded = whole_documents([7]), whole_documents([7, 12])
    ids_WU = padded.input_ids_WU.clone()
    ids_WU[0, :7] = alone.input_ids_WU[0]
    ids_WU[0, 7:] = 9
    with torch.no_grad():
        expected = backbone(alone.input_ids_WU, alone.attention_mask_WU)[0]
        got = backbone(ids_WU, padded.attention_mask_WU)[0, :7]
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_bidirectional_decoder_sees_the_next_token(family, attention):
    ids_WU = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
    mask_WU = torch.ones_like(ids_WU, dtype=torch.bool)
    for bidirectional in (False, True):
        backbone = build(
            family, bidirectional=bidirectional, attention=attention
        ).eval()
        with torch.no_grad():
            first, second = backbone(ids_WU, mask_WU)[:, 2]
        assert torch.equal(first, second) is backbone.causal is not bidirectional


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_token_is_pooled_where_it_sees_the_others(family):
    encoder = HuggingFaceConfig(from_config=tiny(family))
    model = ModelConfig(
        encoder=encoder,
        head=FlatConfig(pooling=PlainPoolingConfig(kind="first")),
        overlap=4,
    )
    if family not in DECODERS:
        model.build(VOCAB, 3)
        return
    for causal in (
        encoder,
        MaxPoolConfig(base=encoder, variant="cls_max", last_layers=2),
    ):
        with pytest.raises(ConfigError, match=r"head\.pooling: "):
            replace(model, encoder=causal).build(VOCAB, 3)
    for seeing in (
        replace(encoder, bidirectional=True),
        MaxPoolConfig(base=encoder, variant="cls_attention", heads=4),
    ):
        replace(model, encoder=seeing).build(VOCAB, 3)


@pytest.mark.parametrize(
    "shape",
    [
        {"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4},
        {"model_type": "openai-gpt", "n_embd": 32, "n_layer": 2, "n_head": 4},
        {
            "model_type": "mamba",
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
        },
    ],
    ids=lambda shape: shape["model_type"],
)
def test_a_decoder_that_does_not_say_so_is_recognised(shape):
    assert HuggingFaceConfig(from_config=shape).build(VOCAB).first_token_is_blind


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        (
            "convbert",
            {"embedding_size": 16, "conv_kernel_size": 3, "head_ratio": 2},
            "differently beside padding",
        ),
        ("fnet", {}, "differently beside padding"),
        ("yoso", {}, "differently beside padding"),
        (
            "nystromformer",
            {"num_landmarks": 4, "segment_means_seq_len": 64},
            "cannot read a text of three tokens",
        ),
        ("xmod", {"languages": ["en_XX"]}, "cannot read a text of three tokens"),
        (
            "opt",
            {"ffn_dim": 64, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
            "another width",
        ),
    ],
)
def test_a_family_whose_states_would_be_wrong_is_refused(family, settings, message):
    shape = tiny("bert", model_type=family, **settings)
    with pytest.raises(ConfigError, match=rf"model\.encoder: {family} .*{message}"):
        HuggingFaceConfig(from_config=shape).build(VOCAB)


def test_a_long_text_has_the_same_states_each_time_in_bigbird():
    shape = tiny("bert", model_type="big_bird", block_size=4, num_random_blocks=1)
    backbone, batch = (
        HuggingFaceConfig(from_config=shape).build(VOCAB).eval(),
        whole_documents([64]),
    )
    with torch.no_grad():
        first, second = (
            backbone(batch.input_ids_WU, batch.attention_mask_WU) for _ in range(2)
        )
    torch.testing.assert_close(first, second, atol=0, rtol=0)


@pytest.mark.parametrize("family", ["mistral", "bert"])
@pytest.mark.parametrize("lora", [None, LoraConfig(r=2, dropout=0.0)])
def test_recomputation_changes_no_gradient(family, lora):
    batch = whole_documents([12, 7, 9, 12, 3])
    gradients = []
    for recomputes in (False, True):
        backbone = build(
            family, dropout=0.0, lora=lora, gradient_checkpointing=recomputes
        ).train()
        hidden_WUD = backbone(batch.input_ids_WU, batch.attention_mask_WU)
        hidden_WUD[batch.attention_mask_WU].square().sum().backward()
        gradients.append([p.grad for p in backbone.parameters() if p.requires_grad])
    for expected, got in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-3)


def test_the_packaged_model_is_the_pretrained_one():
    backbone = HuggingFaceConfig().build(30522).eval()
    assert (backbone.width, backbone.window, len(backbone.layers())) == (384, 512, 7)
    assert not any("pooler" in name for name, _ in backbone.named_parameters())
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    )
    tokens = tokenizer(
        ["renal insufficiency", "kidney failure", "a football match"],
        padding=True,
        return_tensors="pt",
    )
    mask_WU = tokens["attention_mask"].bool()
    with torch.no_grad():
        hidden_WUD = backbone(tokens["input_ids"], mask_WU)
    means_WD = torch.nn.functional.normalize(
        (hidden_WUD * mask_WU[..., None]).sum(1), dim=1
    )
    similar, unlike = (means_WD[:1] @ means_WD[1:].T)[0]
    assert similar > unlike + 0.4


def test_windows_default_to_the_positions_up_to_a_cap():
    long = HuggingFaceConfig(from_config=tiny("llama", max_position_embeddings=131072))
    assert long.build(VOCAB).window == 4096
    assert build("roberta").window == 64  # 66 rows, two of which no token ever has
    with pytest.raises(ConfigError, match=r"model\.encoder\.window: 65 .*64"):
        build("bert", window=65)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("data2vec-text", {}),
        ("ibert", {}),
        ("luke", {}),
        ("xmod", {"languages": ["en_XX"], "default_language": "en_XX"}),
        (
            "esm",
            {
                "pad_token_id": 1,
                "position_embedding_type": "absolute",
                "token_dropout": False,
            },
        ),
    ],
)
def test_a_full_window_has_positions(family, settings):
    shape = tiny("bert", model_type=family, max_position_embeddings=66, **settings)
    backbone = HuggingFaceConfig(from_config=shape).build(VOCAB)
    assert backbone.window == 64
    batch = whole_documents([64])
    assert backbone(batch.input_ids_WU, batch.attention_mask_WU).shape == (1, 64, 32)


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        (tiny("bert", model_type="albert"), 2),  # its layers share their weights
        (tiny("bert", model_type="opt", ffn_dim=64, word_embed_proj_dim=32), 3),
        (
            {
                "model_type": "xlnet",
                "d_model": 32,
                "n_layer": 2,
                "n_head": 4,
                "d_inner": 64,
            },
            3,
        ),
    ],
    ids=["albert", "opt", "xlnet"],
)
def test_families_with_other_names_for_their_layers_train(shape, layers):
    with torch.device("meta"):
        HuggingFaceConfig(from_config=shape).build(VOCAB)
    backbone = HuggingFaceConfig(from_config=shape).build(VOCAB)
    assert len(backbone.layers()) == layers
    assert backbone.window > 8
    batch = whole_documents([12, 7])
    backbone(batch.input_ids_WU, batch.attention_mask_WU).square().sum().backward()
    assert all(
        any(p.grad is not None for p in layer.parameters())
        for layer in backbone.layers()
    )


def test_no_kernel_is_chosen_that_plans_every_shape_anew():
    torch.backends.cuda.enable_cudnn_sdp(True)
    HuggingFaceConfig(from_config=tiny("bert")).build(VOCAB)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_dropout_is_overridden_everywhere():
    backbone = build("bert", dropout=0.25)
    assert {m.p for m in backbone.modules() if isinstance(m, torch.nn.Dropout)} == {
        0.25
    }


def test_stored_weights_take_the_given_type():
    backbone = build("llama", dtype="bfloat16", lora=LoraConfig())
    types = {("lora" in n, p.dtype) for n, p in backbone.named_parameters()}
    assert types == {(False, torch.bfloat16), (True, torch.float32)}


@pytest.mark.parametrize("bidirectional", [False, True])
def test_quantized_weights_train_through_adapters_after_an_evaluation_too(
    tmp_path, bidirectional
):
    pytest.importorskip("bitsandbytes")
    shape = tiny("llama", hidden_size=128, intermediate_size=128)
    HuggingFaceConfig(from_config=shape).build(VOCAB).model.save_pretrained(tmp_path)
    settings = {
        "quantize": "nf4",
        "lora": LoraConfig(r=2, dropout=0.0),
        "bidirectional": bidirectional,
    }
    backbone = HuggingFaceConfig(name=str(tmp_path), **settings).build(VOCAB).train()
    adapters = {n: p for n, p in backbone.named_parameters() if p.requires_grad}
    assert adapters
    assert all("lora_" in name for name in adapters)
    torch.manual_seed(0)
    for parameter in adapters.values():
        torch.nn.init.normal_(parameter, std=0.1)
    batch = whole_documents([12, 7])
    gradients = []
    for _ in range(2):
        hidden_WUD = backbone(batch.input_ids_WU, batch.attention_mask_WU)
        gradients.append(
            torch.autograd.grad(hidden_WUD.float().square().sum(), adapters.values())
        )
        with torch.no_grad():
            backbone.eval()(batch.input_ids_WU, batch.attention_mask_WU)
        backbone.train()
    for before, after in zip(*gradients, strict=True):
        torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"name": "no-such/model"},
            r"cannot load 'no-such/model'.*hf download no-such/model",
        ),
        (
            {"from_config": {"model_type": "no_such_family"}},
            r"from_config: .*no_such_family",
        ),
        ({"from_config": {"model_type": "t5"}}, "t5 is an encoder-decoder"),
        (
            {"from_config": tiny("bert", vocab_size=50)},
            "tokenizer has 100 token ids and the backbone .* only 50",
        ),
        (
            {
                "from_config": tiny("bert", model_type="mpnet"),
                "gradient_checkpointing": 1,
            },
            "gradient_checkpointing: 1, but MPNetModel",
        ),
    ],
)
def test_what_cannot_be_loaded_says_how_to_fix_it(settings, message):
    with pytest.raises(ConfigError, match=message):
        HuggingFaceConfig(**settings).build(VOCAB)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "model.safetensors",
            b"version https://git-lfs",
            "copy the whole folder",
        ),
        ("model.safetensors", None, "copy the whole folder"),
        ("config.json", b"{}", "copy the whole folder"),
        (
            "config.json",
            json.dumps(tiny("bert", vocab_size=VOCAB, intermediate_size=48)).encode(),
            "lacks 6 weights",
        ),
        (
            "config.json",
            json.dumps({"model_type": "clip"}).encode(),
            "clip is not a model of text alone",
        ),
        ("adapter_config.json", b"{}", "merge_and_unload"),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(name, content, message, tmp_path):
    HuggingFaceConfig(from_config=tiny("bert")).build(
        VOCAB
    ).transformer.save_pretrained(tmp_path)
    if name.startswith("adapter"):
        (tmp_path / "config.json").unlink()
    (tmp_path / name).write_bytes(content) if content else (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=rf"model\.encoder.*{message}"):
        HuggingFaceConfig(name=str(tmp_path)).build(VOCAB)


def test_a_configuration_without_padding_id_builds():
    shape = {
        "model_type": "codegen",
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
    }
    assert HuggingFaceConfig(from_config=shape).build(VOCAB).pad_token_id == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantize": "nf4"}, "needs `lora`"),
        (
            {"quantize": "nf4", "lora": LoraConfig(), "from_config": tiny("llama")},
            "needs pretrained weights",
        ),
        ({"from_config": {"hidden_size": 8}}, "needs a `model_type`"),
        ({"attention": "flash_attention_2"}, "needs `dtype: bfloat16`"),
    ],
)
def test_impossible_combinations_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HuggingFaceConfig(**settings)


@pytest.mark.parametrize("layers", [10**9, 10**30])
def test_more_layers_than_any_model_has_are_refused(layers):
    shape = tiny("llama") | {"num_hidden_layers": layers}
    with pytest.raises(ConfigError, match=r"num_hidden_layers is 1000.* up to 1,000"):
        HuggingFaceConfig(from_config=shape).build(VOCAB)


def test_recomputed_layers_keep_little_of_a_long_document():
    batch = whole_documents([48] * 12)

    def kept_bytes(**settings) -> int:
        backbone = build("llama", lora=LoraConfig(r=2), **settings).train()
        fixed = {p.untyped_storage().data_ptr() for p in backbone.parameters()}
        kept = {}

        def keep(tensor):
            if tensor.untyped_storage().data_ptr() not in fixed:
                kept[tensor.untyped_storage().data_ptr()] = (
                    tensor.untyped_storage().nbytes()
                )
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden_WUD = backbone(batch.input_ids_WU, batch.attention_mask_WU)
        assert hidden_WUD.requires_grad
        return sum(kept.values())

    plain = kept_bytes()
    assert kept_bytes(gradient_checkpointing=1) < plain / 5
    assert plain / 3 < kept_bytes(gradient_checkpointing=2) < 0.8 * plain


def varlen(
    q,
    k,
    v,
    *,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    causal,
    softmax_scale,
    dropout_p,
):
    """What FlashAttention's kernel computes: each text of the row (P, heads, D) by itself, as the ends alone say."""
    assert torch.equal(cu_seqlens_q, cu_seqlens_k)
    assert max_seqlen_q == max_seqlen_k >= cu_seqlens_q.diff().max()
    assert causal
    assert dropout_p == 0
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    texts = (
        [x[first:end].transpose(0, 1) for x in (q, k, v)]
        for first, end in pairwise(cu_seqlens_q.tolist())
    )
    attend = partial(
        torch.nn.functional.scaled_dot_product_attention,
        is_causal=True,
        scale=softmax_scale,
    )
    return torch.cat([attend(*text).transpose(0, 1) for text in texts])


@pytest.mark.parametrize("family", DECODERS)
def test_windows_in_one_row_have_the_states_and_gradients_of_padded_ones(
    family, monkeypatch
):
    kernels = (None, varlen, None, None, None)
    monkeypatch.setattr(
        modeling_flash_attention_utils, "_lazy_imports", lambda *args, **others: kernels
    )
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    padded, packed = (
        build(family, dropout=0.0, lora=LoraConfig(dropout=0.0), attention="sdpa")
        for _ in range(2)
    )
    packed.transformer.config._attn_implementation = "flash_attention_2"
    assert not padded.packs
    packed.packs = True
    batch = whole_documents([7, 12, 1, 9])
    found = []
    for backbone in (padded, packed):
        states = (
            backbone(batch.input_ids_WU, batch.attention_mask_WU)
            * batch.attention_mask_WU[..., None]
        )
        states.square().sum().backward()
        found.append(
            (
                states,
                {
                    n: p.grad
                    for n, p in backbone.named_parameters()
                    if p.grad is not None
                },
            )
        )
    (states, gradients), (same, others) = found
    torch.testing.assert_close(same, states, atol=2e-5, rtol=1e-4)
    assert gradients
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, atol=1e-4, rtol=1e-3)

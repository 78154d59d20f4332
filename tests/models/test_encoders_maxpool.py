import pytest
import torch

from tiny import VOCAB, tiny, whole_documents
from xmtc.errors import ConfigError
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, MaxPoolConfig
from xmtc.models.encoders.light_config import BagConfig
from xmtc.models.heads.config import FlatConfig
from xmtc.models.poolings.config import PlainPoolingConfig

BERT = HuggingFaceConfig(from_config=tiny("bert"))
VARIANTS = ("cls_max", "cls_attention", "all_max_attention")


def built(config):
    torch.manual_seed(0)
    return config.build(VOCAB).eval()


def hidden_states(encoder, batch):
    mask = batch.attention_mask_WU
    output = encoder.base.model(
        input_ids=batch.input_ids_WU,
        attention_mask=mask.long(),
        output_hidden_states=True,
    )
    return output.hidden_states


@pytest.fixture
def batch():
    return whole_documents([9, 4])


def test_variants_follow_their_definitions(batch):
    encoders = {
        v: built(MaxPoolConfig(base=BERT, variant=v, last_layers=2)) for v in VARIANTS
    }
    states = hidden_states(encoders["cls_max"], batch)
    pooled = torch.stack(states[-2:]).amax(0)
    hidden = {
        v: e(batch.input_ids_WU, batch.attention_mask_WU) for v, e in encoders.items()
    }
    torch.testing.assert_close(hidden["cls_max"][:, 0], pooled[:, 0])
    torch.testing.assert_close(hidden["cls_max"][:, 1:], states[-1][:, 1:])
    torch.testing.assert_close(
        hidden["cls_attention"], states[-1]
    )  # the attention starts at 0
    torch.testing.assert_close(hidden["all_max_attention"], pooled)


@pytest.mark.parametrize("variant", ["cls_attention", "all_max_attention"])
def test_the_attention_is_added_to_the_first_state(variant, batch):
    encoder = built(MaxPoolConfig(base=BERT, variant=variant, last_layers=2, heads=2))
    torch.nn.init.normal_(encoder.attention.out_proj.weight)
    layers = hidden_states(encoder, batch)
    states = (
        layers[-1] if variant == "cls_attention" else torch.stack(layers[-2:]).amax(0)
    )
    plain = encoder.attention.state_dict()
    queries, keys, values = (
        torch.nn.functional.linear(states, weight, bias)
        for weight, bias in zip(
            plain["in_proj_weight"].chunk(3),
            plain["in_proj_bias"].chunk(3),
            strict=True,
        )
    )
    queries, keys, values = (
        part.unflatten(2, (2, -1)).transpose(1, 2) for part in (queries, keys, values)
    )
    scores = queries[:, :, :1] @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5
    shares = scores.masked_fill(
        ~batch.attention_mask_WU[:, None, None], -torch.inf
    ).softmax(-1)
    read = (shares @ values).transpose(1, 2).flatten(2)
    expected = torch.nn.functional.linear(
        read, plain["out_proj.weight"], plain["out_proj.bias"]
    )
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    torch.testing.assert_close(hidden[:, :1], states[:, :1] + expected)
    torch.testing.assert_close(hidden[:, 1:], states[:, 1:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_changes_nothing_and_everything_learns(variant, batch):
    encoder = built(MaxPoolConfig(base=BERT, variant=variant, last_layers=2))
    if encoder.attention is not None:
        torch.nn.init.normal_(encoder.attention.out_proj.weight)
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    alone = encoder(batch.input_ids_WU[1:, :4], batch.attention_mask_WU[1:, :4])
    torch.testing.assert_close(hidden[1:, :4], alone)
    (hidden[:, 0] * torch.randn(2, encoder.width)).sum().backward()
    ours = [] if encoder.attention is None else list(encoder.attention.parameters())
    assert all(p.grad is not None for p in ours)
    assert encoder.base.transformer.embeddings.word_embeddings.weight.grad.any()


def test_a_window_of_only_padding_stays_finite():
    batch = whole_documents([5, 0])
    encoder = built(MaxPoolConfig(base=BERT, last_layers=2))
    assert encoder(batch.input_ids_WU, batch.attention_mask_WU).isfinite().all()


def test_own_parameters_are_the_top_layer(batch):
    encoder, head = (
        MaxPoolConfig(base=BERT, last_layers=2),
        FlatConfig(pooling=PlainPoolingConfig(kind="first")),
    )
    classifier = ModelConfig(encoder=encoder, head=head, overlap=2).build(
        VOCAB, labels=3
    )
    assert classifier(batch).shape == (2, 3)
    top = f"encoder.{len(classifier.encoder.layers()) - 1}"
    own = {
        id(p)
        for n, p in classifier.encoder.named_parameters()
        if not n.startswith("base.")
    }
    assert {id(p) for p in classifier.parameter_groups()[top]} == own


def test_what_a_variant_does_not_use_is_not_checked():
    MaxPoolConfig(base=BERT, variant="cls_attention", last_layers=5).build(VOCAB)
    MaxPoolConfig(base=BERT, variant="cls_max", last_layers=2, heads=5).build(VOCAB)


@pytest.mark.parametrize("variant", ["cls_max", "cls_attention"])
def test_a_pooling_past_the_enriched_token_is_refused(variant):
    encoder = MaxPoolConfig(base=BERT, variant=variant)
    with pytest.raises(
        ValueError,
        match=rf"head\.pooling .* encoder\.variant: {variant} .*\{{kind: first\}}",
    ):
        ModelConfig(encoder=encoder, head=FlatConfig())
    ModelConfig(
        encoder=encoder, head=FlatConfig(pooling=PlainPoolingConfig(kind="first"))
    )
    ModelConfig(encoder=MaxPoolConfig(base=BERT), head=FlatConfig())


def test_refusals():
    with pytest.raises(ConfigError, match=r"last_layers: 5, .* 2 layers; .* at most 2"):
        MaxPoolConfig(base=BERT, last_layers=5).build(VOCAB)
    with pytest.raises(ConfigError, match="heads: 5"):
        MaxPoolConfig(base=BERT, last_layers=2, heads=5).build(VOCAB)


def test_wrapped_backbones_bring_their_tokenizer():
    base = HuggingFaceConfig(name="somewhere")
    assert [encoder.tokenizer_name for encoder in (base, MaxPoolConfig(base=base))] == [
        "somewhere"
    ] * 2
    assert BagConfig().tokenizer_name is None

"""The lightweight encoders: padding, gradients, sizes, and what each of them claims."""

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tiny import VOCAB, whole_documents
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.config import EncoderConfig
from xmtc.models.encoders.light_config import (
    BagConfig,
    BiGRUConfig,
    CNNConfig,
    EmbeddingConfig,
    MultilevelConfig,
    SelfAttentionConfig,
)
from xmtc.models.encoders.recurrent import BiGRU
from xmtc.models.encoders.self_attention import (
    Depthwise,
    FeedForward,
    MultilevelAttention,
    band_mask,
    global_attention,
    local_attention,
    split_projection,
)
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig

SMALL = EmbeddingConfig(width=16)
CONFIGS = [
    SelfAttentionConfig(embedding=SMALL, width=16),
    SelfAttentionConfig(embedding=EmbeddingConfig(width=6), width=16, layers=1),
    MultilevelConfig(embedding=SMALL, width=16, local_radius=3),
    MultilevelConfig(embedding=SMALL, width=16, local_radius=2, transform="low_rank"),
    MultilevelConfig(embedding=SMALL, width=16, local_radius=4, transform="depthwise"),
    BiGRUConfig(embedding=SMALL, hidden=8, layers=2),
    CNNConfig(embedding=SMALL, filters=5, filter_widths=(2, 3, 4)),
    BagConfig(embedding=SMALL),
]


def named(config):
    return "-".join(
        str(getattr(config, key))
        for key in ("kind", "transform", "layers")
        if hasattr(config, key)
    )


each = pytest.mark.parametrize("config", CONFIGS, ids=named)


def built(config):
    torch.manual_seed(0)
    return config.build(VOCAB).eval()


@each
def test_padding_changes_nothing(config):
    encoder = built(config)
    batch = whole_documents([11, 4, 1])
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    assert hidden.shape == (3, 11, encoder.width)
    assert (hidden[~batch.attention_mask_WU] == 0).all()
    for row, length in enumerate([11, 4, 1]):
        alone = encoder(
            batch.input_ids_WU[row : row + 1, :length],
            torch.ones(1, length, dtype=torch.bool),
        )
        torch.testing.assert_close(hidden[row : row + 1, :length], alone)


@each
def test_what_stands_in_the_padding_does_not_matter(config):
    encoder = built(config)
    batch = whole_documents([7, 3])
    other = batch.input_ids_WU.masked_fill(~batch.attention_mask_WU, 9)
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    torch.testing.assert_close(encoder(other, batch.attention_mask_WU), hidden)


@each
def test_a_window_of_only_padding_stays_finite(config):
    encoder = built(config).train()
    batch = whole_documents([5, 0])
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    hidden.sum().backward()
    assert hidden.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@each
def test_every_parameter_learns_and_belongs_to_a_layer(config):
    encoder = built(config).train()
    batch = whole_documents([9, 6])
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    (
        hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2))
    ).sum().backward()
    assert [
        n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.any()
    ] == []
    assert encoder.layers()[0] is encoder.embedding


@each
@pytest.mark.parametrize(
    "head",
    [FlatConfig(), LabelAttentionConfig(width=8, heads=2)],
    ids=["flat", "attention"],
)
def test_either_head_stands_on_it(config, head):
    classifier = ModelConfig(encoder=config, head=head, overlap=2).build(
        VOCAB, labels=7
    )
    assert classifier(whole_documents([9, 6])).shape == (2, 7)


@each
def test_configuration_survives_validation(config):
    adapter = TypeAdapter(EncoderConfig)
    assert adapter.validate_json(adapter.dump_json(config)) == config


def attention_inputs(length, seed=0, windows=3, heads=2, width=4):
    generator = torch.Generator().manual_seed(seed)
    joint = torch.randn(
        windows, length, 3 * heads * width, generator=generator, dtype=torch.float64
    )
    lengths = torch.tensor([length, max(1, length // 2), 1])
    return split_projection(joint, heads), torch.arange(length) < lengths.unsqueeze(1)


@pytest.mark.parametrize("length", [1, 5, 12, 13])
@pytest.mark.parametrize("radius", [1, 4, 20])
def test_local_attention_is_dense_attention_within_a_band(length, radius):
    (query, key, value), mask = attention_inputs(length)
    local = local_attention(query, key, value, mask, radius)
    scores = query @ key.transpose(2, 3) / 2
    scores = scores.masked_fill(~band_mask(mask, radius).unsqueeze(1), -torch.inf)
    dense = (scores.softmax(3) @ value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(local[mask], dense[mask])


def test_local_attention_over_everything_is_global_attention():
    (query, key, value), mask = attention_inputs(12)
    everything = local_attention(query, key, value, mask, 12)
    torch.testing.assert_close(
        everything[mask], global_attention(query, key, value, mask)[mask]
    )


def operations(length, attention):
    query, key, value = split_projection(torch.randn(1, length, 3 * 32), 2)
    # only the plain products are counted on a CPU, not the fused kernel
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        attention(query, key, value, torch.ones(1, length, dtype=torch.bool))
    return counter.get_total_flops()


def test_local_attention_costs_in_proportion_to_the_length():
    def local(*inputs):
        return local_attention(*inputs, radius=16)

    assert operations(1024, local) == 8 * operations(128, local) > 0
    assert operations(1024, global_attention) == 64 * operations(128, global_attention)
    assert operations(1024, local) < operations(1024, global_attention) / 20
    assert operations(20, local) == operations(
        20, global_attention
    )  # no matter how wide the band


def test_no_band_is_wider_than_the_window():
    encoder = MultilevelConfig(
        embedding=SMALL, width=16, window=8, local_radius=10**9
    ).build(VOCAB)
    assert {block.attention.radius for block in encoder.blocks} == {8}


def test_gate_chooses_between_global_and_local():
    torch.manual_seed(0)
    attention = MultilevelAttention(8, 2, radius=2)
    hidden, mask = torch.randn(2, 9, 8), torch.ones(2, 9, dtype=torch.bool)
    torch.nn.init.constant_(attention.gate.bias, 1e4)
    far = attention.output(
        global_attention(*split_projection(attention.project_global(hidden), 2), mask)
    )
    torch.testing.assert_close(attention(hidden, mask), far)
    torch.nn.init.constant_(attention.gate.bias, -1e4)
    near = attention.output(
        local_attention(*split_projection(attention.project_local(hidden), 2), mask, 2)
    )
    torch.testing.assert_close(attention(hidden, mask), near)


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_recurrent_layers_are_those_of_pytorch_over_packed_windows():
    recurrent = BiGRU(6, 5, layers=2, dropout=0.0)
    pytorch = nn.GRU(6, 5, 2, batch_first=True, bidirectional=True)
    weights = {}
    for suffix, direction in (
        ("", recurrent.rightward),
        ("_reverse", recurrent.leftward),
    ):
        for layer, one in enumerate(direction):
            weights |= {
                key.replace("l0", f"l{layer}") + suffix: value
                for key, value in one.state_dict().items()
            }
    pytorch.load_state_dict(weights)

    lengths = torch.tensor([9, 4, 1])
    windows, mask = torch.randn(3, 9, 6), torch.arange(9) < lengths.unsqueeze(1)
    packed = pack_padded_sequence(windows, lengths, batch_first=True)
    wanted, _ = pad_packed_sequence(pytorch(packed)[0], batch_first=True)
    torch.testing.assert_close(recurrent(windows, mask), wanted)


def test_backward_of_a_gru_costs_in_proportion_to_the_length():
    recurrent = BiGRU(4, 4, layers=1, dropout=0.0)

    def written(length):
        states = recurrent(
            torch.randn(1, length, 4, requires_grad=True),
            torch.ones(1, length, dtype=torch.bool),
        )
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            states.sum().backward()
        return sum(max(0, event.self_cpu_memory_usage) for event in found.events())

    written(8)
    assert written(256) < 1.5 * 4 * written(64)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_light_transforms_have_under_a_tenth_of_the_feed_forward_parameters(width):
    full = count(FeedForward(width, 4 * width))
    assert count(FeedForward(width, width // 4)) < full / 10
    assert count(Depthwise(width)) < full / 10


def test_multilevel_of_the_size_of_the_plain_transformer():
    plain, level = (
        SelfAttentionConfig().build(VOCAB),
        MultilevelConfig(feed_forward=192).build(VOCAB),
    )
    assert abs(count(level) - count(plain)) < 0.01 * count(plain)


def test_token_dropout_leaves_whole_tokens_out():
    torch.manual_seed(0)
    embedding = EmbeddingConfig(width=8, dropout=0.0, token_dropout=0.5).build(
        VOCAB, 64
    )
    ids = torch.randint(5, VOCAB, (4, 64))
    mask = torch.ones_like(ids, dtype=torch.bool)
    embedded = embedding(ids, mask)
    left_out = (embedded == 0).all(2)
    assert 0.3 < left_out.float().mean() < 0.7
    torch.testing.assert_close(embedded[~left_out], embedding.tokens(ids)[~left_out])
    assert (embedding.eval()(ids, mask) != 0).any(2).all()


@pytest.mark.parametrize("key", ["window", "width", "heads", "feed_forward", "layers"])
def test_sizes_that_no_machine_holds_are_refused(key):
    with pytest.raises(ValueError, match="less than or equal to"):
        TypeAdapter(EncoderConfig).validate_json(
            f'{{"kind": "self_attention", "{key}": {2**70}}}'
        )

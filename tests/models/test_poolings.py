import pytest
import torch

from xmtc.errors import ConfigError
from xmtc.models.poolings.config import (
    AttentionPoolingConfig,
    PlainPoolingConfig,
    SummaryPoolingConfig,
)
from xmtc.models.poolings.pooling import FixedPoolings

CONFIGS = [
    PlainPoolingConfig(kind="first"),
    PlainPoolingConfig(kind="last"),
    PlainPoolingConfig(),
    PlainPoolingConfig(kind="max"),
    AttentionPoolingConfig(),
    AttentionPoolingConfig(heads=2, normaliser="sparsemax"),
    AttentionPoolingConfig(heads=4, normaliser="entmax15"),
    SummaryPoolingConfig(width=6),
    SummaryPoolingConfig(width=6, members=2),
]
LENGTHS = (5, 1, 3, 0)


def build(config):
    torch.manual_seed(0)
    pooling = config.build(8).eval()
    for parameter in pooling.parameters():
        torch.nn.init.normal_(parameter)
    return pooling


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(4, 5, 8, generator=generator, requires_grad=True)
    return hidden, torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_padding_changes_nothing(config, batch):
    hidden, mask = batch
    pooling = build(config)
    pooled = pooling(hidden, mask)
    assert pooled.shape == (4, pooling.width)
    for row, length in enumerate(LENGTHS[:3]):
        alone = pooling(hidden[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(pooled[row : row + 1], alone)
    assert (pooled[3] == 0).all()
    pooled.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[~mask].abs().max() == 0
    assert hidden.grad[mask].abs().sum() > 0


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_weights_are_shares_of_unpadded_tokens(config, batch):
    hidden, mask = batch
    weights = build(config).weights(hidden, mask)
    torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()


def test_each_pooling_is_what_its_name_says(batch):
    hidden, mask = batch
    torch.testing.assert_close(
        build(PlainPoolingConfig(kind="first"))(hidden, mask)[:3], hidden[:3, 0]
    )
    torch.testing.assert_close(
        build(PlainPoolingConfig(kind="last"))(hidden, mask)[2], hidden[2, 2]
    )
    torch.testing.assert_close(
        build(PlainPoolingConfig())(hidden, mask)[2], hidden[2, :3].mean(0)
    )
    torch.testing.assert_close(
        build(PlainPoolingConfig(kind="max"))(hidden, mask)[2], hidden[2, :3].amax(0)
    )
    attention = AttentionPoolingConfig(heads=2).build(
        8
    )  # fresh queries are 0, which is the mean
    torch.testing.assert_close(attention(hidden, mask)[2], hidden[2, :3].mean(0))


def test_fixed_poolings_are_mean_maximum_first_and_lead():
    hidden = torch.randn(1, 70, 8, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(1, 70, dtype=torch.bool)
    document = hidden[0]
    expected = torch.stack(
        [document.mean(0), document.amax(0), document[0], document[:64].mean(0)]
    )
    torch.testing.assert_close(FixedPoolings(8)(hidden, mask)[0], expected)


def test_fixed_poolings_are_float32_under_autocast(batch):
    hidden, mask = batch
    with torch.autocast("cpu", torch.bfloat16):
        found = FixedPoolings(8)(hidden.bfloat16(), mask)
    torch.testing.assert_close(found, FixedPoolings(8)(hidden.bfloat16().float(), mask))


def test_a_summary_is_a_layer_over_standardised_fixed_poolings(batch):
    hidden, mask = batch
    pooling = SummaryPoolingConfig(width=6).build(8)
    fixed = pooling.fixed(hidden[:3] + 5, mask[:3]).detach()
    pooling.init_from_documents(fixed)
    standard = (fixed - fixed.mean(0)) / fixed.std(0, correction=0)
    expected = (standard.flatten(1) @ pooling.layer.weight_PX.T).clamp(min=0)
    torch.testing.assert_close(
        pooling(hidden[:3] + 5, mask[:3]), expected, atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(pooling.of_fixed(fixed), expected, atol=1e-5, rtol=1e-5)


def test_pooled_is_the_weighted_sum(batch):
    hidden, mask = batch
    pooling = build(AttentionPoolingConfig(normaliser="sparsemax"))
    torch.testing.assert_close(
        pooling(hidden, mask),
        torch.einsum("bt,btd->bd", pooling.weights(hidden, mask), hidden),
    )


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_contributions_sum_to_the_product_with_the_pooled_vector(config, batch):
    hidden, mask = batch
    pooling = build(config)
    rows = torch.randn(4, 3, pooling.width, generator=torch.Generator().manual_seed(2))
    shares = pooling.contributions(hidden, mask, rows)
    assert shares.shape == (4, 3, 5)
    torch.testing.assert_close(
        shares.sum(2), torch.einsum("bsd,bd->bs", rows, pooling(hidden, mask))
    )
    assert (shares.transpose(1, 2)[~mask] == 0).all()


def test_half_precision_hidden_states(batch):
    hidden, mask = batch
    for config in CONFIGS:
        assert build(config)(hidden.bfloat16(), mask).isfinite().all()


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match=r"pooling\.heads: 3"):
        AttentionPoolingConfig(heads=3).build(8)

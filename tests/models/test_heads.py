"""Heads: what they promise to the training loop, explanations and mining."""

import json

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from xmtc.models.heads.config import FlatConfig, HeadConfig, LabelAttentionConfig
from xmtc.models.kernels.products import PADDED_LOGIT
from xmtc.models.poolings.config import SummaryPoolingConfig

B, T, D, L = 3, 6, 10, 9
IDS = torch.tensor([4, 0, 7])


@pytest.fixture
def batch():
    torch.manual_seed(0)
    mask = torch.arange(T) < torch.tensor([[T], [3], [1]])
    return torch.randn(B, T, D), mask


def label_attention(**settings):
    torch.manual_seed(1)
    head = LabelAttentionConfig(width=12, heads=3, **settings).build(D, L).eval()
    head.bias.data.copy_(torch.randn(L))
    return head


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax"])
@pytest.mark.parametrize("row_dtype", ["float32", "bfloat16"])
def test_contributions_and_contexts_give_the_logits(
    batch, normalize, normaliser, row_dtype
):
    head = label_attention(
        normalize=normalize, normaliser=normaliser, row_dtype=row_dtype
    ).requires_grad_(False)
    # the tables are then exact in either storage, and so are the three ways to a logit
    logits, wanted = head(*batch), []
    contributions = head.contributions(*batch, IDS.expand(B, -1))
    wanted.append(contributions.sum(-1) + head.bias[IDS])
    wanted.append(
        (head.contexts(*batch, IDS) * head.weights[IDS]).sum(-1) + head.bias[IDS]
    )
    wanted.append(head(*batch, IDS.expand(B, -1)))
    for other in wanted:
        torch.testing.assert_close(other, logits[:, IDS], atol=1e-5, rtol=1e-5)
    assert (
        contributions.masked_select(~batch[1][:, None].expand_as(contributions)) == 0
    ).all()


def test_attention_is_the_softmax_of_the_scores(batch):
    head = label_attention()
    scores, attention = head.attention_scores(*batch, IDS), head.attention(*batch, IDS)
    assert scores.shape == attention.shape == (B, len(IDS), 3, T)
    torch.testing.assert_close(attention.sum(-1), torch.ones(B, len(IDS), 3))
    wanted = scores.masked_fill(~batch[1][:, None, None], -torch.inf).softmax(-1)
    torch.testing.assert_close(attention, wanted)


def test_normalised_scores_stay_bounded_however_large_the_inputs(batch):
    head = label_attention()
    with torch.no_grad():
        head.queries *= 1e6
    scores = head.attention_scores(batch[0] * 1e6, batch[1], IDS)
    assert scores.abs().max() <= 4**0.5 + 1e-3  # √(width of a head), at a gain of 1


def test_attention_parameters_are_exactly_what_the_scores_depend_on(batch):
    head = label_attention()
    head.attention_scores(*batch, IDS).square().sum().backward()
    touched = {id(p) for p in head.parameters() if p.grad is not None}
    assert touched == {id(p) for p in head.attention_parameters()}


@pytest.mark.parametrize("config", [LabelAttentionConfig(width=12), FlatConfig()])
def test_shortlist_gives_the_gathered_logits_and_sparse_gradients(batch, config):
    head = config.build(D, L).eval()
    head.sparse_gradients = True
    shortlist = torch.tensor([[1, 2], [8, 2], [2, -1]])
    logits = head(*batch, shortlist)
    wanted = (
        head(*batch)
        .gather(1, shortlist.clamp(min=0))
        .masked_fill(shortlist < 0, PADDED_LOGIT)
    )
    torch.testing.assert_close(logits, wanted)
    logits.sum().backward()
    for table in (head.weights, head.bias):
        assert set(table.grad.coalesce().indices()[0].tolist()) == {1, 2, 8}


def test_flat_head_is_linear_in_the_pooled_vector(batch):
    head = FlatConfig().build(D, L).eval()
    head.weights.data.fill_(1)
    head.bias.data.copy_(torch.arange(L))
    pooled = head.document_vectors(*batch)
    torch.testing.assert_close(
        head(*batch), pooled.sum(-1, keepdim=True) + torch.arange(L)
    )
    torch.testing.assert_close(
        pooled[2], batch[0][2, 0]
    )  # one token only: its mean is itself


def test_members_of_a_summary_train_apart_and_are_averaged(batch):
    torch.manual_seed(1)
    config = FlatConfig(pooling=SummaryPoolingConfig(width=4, members=2), dropout=0.0)
    head = config.build(D, L)
    units_BP = head.pooling.layer(head.pooling.fixed(*batch))
    products = [
        units @ rows.T + head.bias
        for units, rows in zip(
            units_BP.chunk(2, 1), head.weights.chunk(2, 1), strict=True
        )
    ]
    trained = head.train()(*batch)
    torch.testing.assert_close(
        trained, torch.stack([products[row % 2][row] for row in range(B)])
    )
    torch.testing.assert_close(head(*batch, IDS), trained[:, IDS])
    torch.testing.assert_close(head.eval()(*batch), torch.stack(products).mean(0))
    trained[1].sum().backward()
    first, second = head.weights.grad.chunk(2, 1)
    assert (first == 0).all()
    assert (second != 0).any()


def test_document_vectors_rank_labels_as_uniform_attention_does(batch):
    head = label_attention(normalize=False)
    with torch.no_grad():
        head.queries.zero_()
    wanted = head.document_vectors(*batch) @ head.weights.T + head.bias
    torch.testing.assert_close(head(*batch), wanted)


def test_document_of_only_padding_is_finite(batch):
    mask = batch[1].clone()
    mask[1] = False
    for head in (label_attention(), FlatConfig().build(D, L)):
        logits = head(batch[0], mask)
        logits.sum().backward()
        assert logits.isfinite().all()
        assert all(
            p.grad.isfinite().all() for p in head.parameters() if p.grad is not None
        )


def test_autocast_gives_float32_logits_near_the_exact_ones(batch):
    head = label_attention()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(*batch)
    logits.sum().backward()
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, head(*batch), atol=0.05, rtol=0.05)


def test_config_union_and_its_errors():
    adapter = TypeAdapter(HeadConfig)
    assert adapter.validate_json(json.dumps({"kind": "flat"})) == FlatConfig()
    with pytest.raises(ValidationError, match="heads: 5"):
        adapter.validate_json(
            json.dumps({"kind": "label_attention", "width": 256, "heads": 5})
        )
    with pytest.raises(ValidationError, match="kernel"):
        adapter.validate_json(json.dumps({"kind": "label_attention", "kernel": "fast"}))

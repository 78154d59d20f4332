"""Label-attention kernels against the plain formula in float64."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from host_waits import HostWaits
from xmtc.models.kernels.dispatch import label_attention, label_attention_shortlist
from xmtc.models.kernels.options import Options
from xmtc.models.kernels.products import PADDED_LOGIT
from xmtc.models.kernels.reference import normalise_rows, reference_logits
from xmtc.models.kernels.sdpa import CHUNK_BYTES, automatic_chunk

B, T, L, D, HEADS = 3, 7, 11, 12, 3
NORMALISERS = ("softmax", "sparsemax", "entmax15")
COMBINATIONS = [
    (name, normaliser) for name in ("chunked", "sdpa") for normaliser in NORMALISERS
]


@pytest.fixture
def small_chunks(monkeypatch):
    """Several chunks of labels, and so several blocks, even for these few."""
    monkeypatch.setattr("xmtc.models.kernels.sdpa.MIN_LABELS", 3)
    monkeypatch.setattr("xmtc.models.kernels.sdpa.CHUNK_BYTES", 0)
    monkeypatch.setattr("xmtc.models.kernels.chunked.MIN_LABELS", 3)
    monkeypatch.setattr("xmtc.models.kernels.chunked.BLOCK_BYTES", 0)


def reference(keys, values, mask, queries, weights, bias, options):
    """The plain formula, all labels at once."""
    if options.normalise_queries:
        queries = normalise_rows(queries, options.heads)
    return (
        reference_logits(
            keys,
            values,
            mask,
            queries,
            weights,
            heads=options.heads,
            normaliser=options.normaliser,
        )
        + bias
    )


def inputs(seed=0, dtype=torch.float64, labels=L):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, T, D), (B, T, D), (labels, D), (labels, D), (labels,))
    keys, values, queries, weights, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    )
    mask = torch.arange(T) < torch.tensor([[T], [4], [1]])
    return keys, values, mask, queries, weights, bias


def by_hand(keys, values, mask, queries, weights, bias):
    """The formula of docs/explanation/kernels.md, one document, label and head after another."""
    width, logits = D // HEADS, []
    for b in range(len(keys)):
        for label in range(len(queries)):
            total = bias[label]
            for m in range(HEADS):
                part = slice(m * width, (m + 1) * width)
                scores = (
                    keys[b, mask[b], part] @ queries[label, part] / math.sqrt(width)
                )
                total = total + weights[label, part] @ (
                    scores.softmax(0) @ values[b, mask[b], part]
                )
            logits.append(total)
    return torch.stack(logits).view(len(keys), -1)


def gradients(logits, tensors):
    pull = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
    return torch.autograd.grad(logits, tensors, pull, retain_graph=True)


def assert_same(got, wanted, tensors):
    torch.testing.assert_close(got, wanted)
    differentiable = [x for x in tensors if x.requires_grad]
    torch.testing.assert_close(
        gradients(got, differentiable), gradients(wanted, differentiable)
    )


@pytest.mark.parametrize("implementation", ["auto", "chunked", "sdpa"])
def test_equals_the_formula_with_gradients(implementation):
    tensors = inputs()
    assert_same(
        label_attention(*tensors, Options(heads=HEADS, implementation=implementation)),
        by_hand(*tensors),
        tensors,
    )


@pytest.mark.parametrize("implementation", ["chunked", "sdpa"])
@pytest.mark.usefixtures("small_chunks")
def test_chunks_equal_the_formula_with_gradients(implementation):
    tensors = inputs()
    assert_same(
        label_attention(*tensors, Options(heads=HEADS, implementation=implementation)),
        by_hand(*tensors),
        tensors,
    )


def test_the_plain_formula_is_the_one_by_hand():
    tensors = inputs()
    assert_same(reference(*tensors, Options(heads=HEADS)), by_hand(*tensors), tensors)


@pytest.mark.parametrize(("implementation", "normaliser"), COMBINATIONS)
@pytest.mark.parametrize("normalise_queries", [False, True])
@pytest.mark.usefixtures("small_chunks")
def test_chunks_equal_the_reference_for_every_normaliser(
    implementation, normaliser, normalise_queries
):
    tensors = inputs(1)
    options = {
        "heads": HEADS,
        "normaliser": normaliser,
        "normalise_queries": normalise_queries,
    }
    got = label_attention(*tensors, Options(**options, implementation=implementation))
    assert_same(got, reference(*tensors, Options(**options)), tensors)


@pytest.mark.parametrize(
    ("implementation", "normaliser"),
    [("sdpa", "softmax"), ("chunked", "softmax"), ("chunked", "entmax15")],
)
@pytest.mark.usefixtures("small_chunks")
def test_gradcheck(implementation, normaliser):
    keys, values, mask, *tables = inputs(2, labels=3)

    def logits(keys, values, *tables):
        how = {"implementation": implementation, "normaliser": normaliser}
        options = Options(heads=1, normalise_queries=True, **how)
        return label_attention(keys, values, mask, *tables, options)

    assert torch.autograd.gradcheck(logits, (keys, values, *tables), fast_mode=True)


@pytest.mark.parametrize(("implementation", "normaliser"), COMBINATIONS)
def test_padding_changes_nothing(implementation, normaliser):
    keys, values, mask, *tables = inputs(3)
    options = Options(heads=HEADS, implementation=implementation, normaliser=normaliser)
    wanted = label_attention(keys, values, mask, *tables, options)
    extra = torch.full((B, 5, D), 1e3, dtype=keys.dtype)
    padded_mask = torch.cat([mask, torch.zeros(B, 5, dtype=torch.bool)], 1)
    longer = (torch.cat([keys, extra], 1), torch.cat([values, extra], 1), padded_mask)
    torch.testing.assert_close(label_attention(*longer, *tables, options), wanted)


@pytest.mark.parametrize(("implementation", "normaliser"), COMBINATIONS)
def test_document_of_only_padding_gets_the_bias_and_finite_gradients(
    implementation, normaliser
):
    keys, values, mask, *tables = inputs(4)
    mask = mask.clone()
    mask[1] = False
    options = Options(heads=HEADS, implementation=implementation, normaliser=normaliser)
    logits = label_attention(keys, values, mask, *tables, options)
    torch.testing.assert_close(logits[1], tables[2])
    for gradient in gradients(logits, (keys, values, *tables)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("normaliser", ["softmax", "entmax15"])
def test_shortlist_is_a_gather_of_all_logits(normaliser):
    tensors = inputs(5)
    shortlist = torch.tensor([[3, 0, 10], [5, 5, 1], [2, -1, -1]])
    options = Options(heads=HEADS, normaliser=normaliser, normalise_queries=True)
    full = label_attention(*tensors, options)
    wanted = full.gather(1, shortlist.clamp(min=0)).masked_fill(
        shortlist < 0, PADDED_LOGIT
    )
    differentiable = [x for x in tensors if x.requires_grad]
    for sparse in (False, True):
        got = label_attention_shortlist(*tensors, shortlist, options, sparse=sparse)
        torch.testing.assert_close(got, wanted)
        found = [x.to_dense() for x in gradients(got, differentiable)]
        torch.testing.assert_close(found, list(gradients(wanted, differentiable)))


def test_shortlist_gradients_are_sparse_and_padding_touches_no_further_row():
    keys, values, mask, *tables = inputs(6)
    shortlist = torch.tensor([[3, 0], [5, 5], [-1, -1]])
    logits = label_attention_shortlist(
        keys, values, mask, *tables, shortlist, Options(heads=HEADS), sparse=True
    )
    for gradient in gradients(logits, tables):
        assert gradient.is_sparse
        assert set(gradient.coalesce().indices()[0].tolist()) == {0, 3, 5}


def test_empty_shortlists_have_no_gradient():
    keys, values, mask, *tables = inputs(6)
    logits = label_attention_shortlist(
        keys, values, mask, *tables, torch.full((B, 2), -1), Options(heads=HEADS)
    )
    assert (logits == PADDED_LOGIT).all()
    assert all((g == 0).all() for g in gradients(logits, (keys, *tables)))


@pytest.mark.parametrize("implementation", ["chunked", "sdpa"])
@pytest.mark.usefixtures("small_chunks")
def test_bfloat16_keys_with_float32_tables(implementation):
    exact = inputs(7)
    low = [x.detach().to(torch.bfloat16).requires_grad_() for x in exact[:2]]
    tables = [x.detach().float().requires_grad_() for x in exact[3:]]
    logits = label_attention(
        *low, exact[2], *tables, Options(heads=HEADS, implementation=implementation)
    )
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), by_hand(*exact), atol=0.1, rtol=0.05)
    found = gradients(logits, (*low, *tables))
    assert [x.dtype for x in found] == [torch.bfloat16] * 2 + [torch.float32] * 3


class LargestTensor(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if (
                isinstance(x, torch.Tensor)
                and x.untyped_storage().nbytes() >= x.numel() * x.element_size()
            ):
                self.elements = max(self.elements, x.numel())
        return out


@pytest.mark.parametrize("implementation", ["chunked", "sdpa"])
def test_memory_does_not_grow_with_the_label_set_beyond_logits_and_gradients(
    implementation, monkeypatch
):
    labels = 4000
    monkeypatch.setattr("xmtc.models.kernels.sdpa.CHUNK_BYTES", 2**17)
    monkeypatch.setattr("xmtc.models.kernels.chunked.BLOCK_BYTES", 2**15)
    keys, values, mask, *tables = inputs(8, labels=labels)
    options = Options(heads=HEADS, implementation=implementation)
    with LargestTensor() as seen:
        logits = label_attention(keys, values, mask, *tables, options)
        gradients(logits, (keys, values, *tables))
    assert seen.elements <= labels * max(B, D)  # no (B, L, D), no (B, L, T)


def test_automatic_chunk_keeps_to_its_budget():
    small = automatic_chunk(CHUNK_BYTES, 16, 512, 256, 4, stores_scores=True)
    assert (
        64 <= small < automatic_chunk(CHUNK_BYTES, 16, 512, 256, 4, stores_scores=False)
    )
    assert automatic_chunk(CHUNK_BYTES, 10_000, 512, 256, 4, stores_scores=True) == 64


def test_normalise_rows_bounds_the_scores():
    rows = normalise_rows(torch.randn(5, D) * 100, HEADS).unflatten(-1, (HEADS, -1))
    torch.testing.assert_close(rows.square().mean(-1), torch.ones(5, HEADS))


@pytest.mark.parametrize("normaliser", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("spread", [0.01, 1.0])
def test_chunked_attends_to_more_tokens_than_it_first_sorts(normaliser, spread):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 300, D, generator=generator, dtype=torch.float64) * spread
    mask = torch.arange(300) < torch.tensor([[300], [170]])
    tensors = [x.detach().requires_grad_() for x in (keys, keys.flip(1))]
    tables = [x.detach().requires_grad_() for x in inputs(7)[3:]]
    found = label_attention(
        *tensors,
        mask,
        *tables,
        Options(heads=HEADS, implementation="chunked", normaliser=normaliser),
    )
    assert_same(
        found,
        reference(*tensors, mask, *tables, Options(heads=HEADS, normaliser=normaliser)),
        tensors + tables,
    )


@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax"])
def test_the_host_does_not_wait_whatever_the_number_of_chunks(small_chunks, normaliser):
    tensors = inputs()
    with HostWaits() as host:
        host.place(*tensors)
        label_attention(
            *tensors, Options(heads=HEADS, implementation="sdpa", normaliser=normaliser)
        ).sum().backward()
    assert not host.total()
    assert not host.mixed

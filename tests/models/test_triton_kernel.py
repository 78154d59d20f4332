"""The Triton kernel against the formula: on a GPU, or through Triton's interpreter (`TRITON_INTERPRET=1`, `make
test-triton`). Skips where Triton is absent, and where there is neither."""

import os

import pytest
import torch

pytest.importorskip(
    "triton", reason="Triton is not installed; see docs/explanation/kernels.md"
)

from xmtc.models.kernels.dispatch import label_attention
from xmtc.models.kernels.options import Options

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
    reason="no GPU, and no TRITON_INTERPRET=1",
)
# The interpreter is silently wrong in bf16; tolerances are relative to the largest value.
DTYPES = [(torch.float32, 1e-5), (torch.float16, 5e-3)] + [(torch.bfloat16, 1e-2)] * (
    DEVICE == "cuda"
)
LENGTHS = [70, 0, 3, 32]


def inputs(width, labels, dtype, table_dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    tokens = max(LENGTHS) + 5
    shapes = [(len(LENGTHS), tokens, width)] * 2 + [(labels, width)] * 2 + [(labels,)]
    dtypes = [dtype] * 2 + [table_dtype] * 2 + [torch.float32]
    tensors = [
        torch.randn(*shape, generator=generator).to(DEVICE, dtype=kind).requires_grad_()
        for shape, kind in zip(shapes, dtypes, strict=True)
    ]
    mask = torch.arange(tokens) < torch.tensor(LENGTHS)[:, None]
    return (*tensors[:2], mask.to(DEVICE), *tensors[2:])


def run(tensors, options):
    """Logits and the gradients of all but the mask."""
    logits = label_attention(*tensors, options)
    pull = torch.linspace(-1, 1, logits.numel(), device=logits.device).view_as(logits)
    return [
        logits,
        *torch.autograd.grad(
            logits, [x for x in tensors if x.requires_grad], pull.to(logits.dtype)
        ),
    ]


def check(tensors, options, tolerance):
    exact = [
        x.detach().double().requires_grad_() if x.is_floating_point() else x
        for x in tensors
    ]
    wanted = run(
        exact,
        Options(
            heads=options.heads,
            normalise_queries=options.normalise_queries,
            implementation="sdpa",
        ),
    )
    for found, right in zip(run(tensors, options), wanted, strict=True):
        assert (found.double() - right).abs().max() <= tolerance * right.abs().max()


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("width", "heads"), [(64, 2), (48, 1), (128, 1)])
@pytest.mark.parametrize("normalise_queries", [False, True])
def test_equals_the_formula_in_float64(
    dtype, tolerance, width, heads, normalise_queries
):
    options = Options(
        heads=heads, normalise_queries=normalise_queries, implementation="triton"
    )
    check(inputs(width, 70, dtype), options, tolerance)


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_and_split_backward_agree(deterministic, monkeypatch):
    monkeypatch.setattr(
        torch, "are_deterministic_algorithms_enabled", lambda: deterministic
    )
    check(
        inputs(16, 600, torch.float32), Options(heads=1, implementation="triton"), 1e-5
    )


def test_holes_in_the_mask_and_half_precision_tables():
    keys, values, mask, *tables = inputs(
        32, 20, torch.float32, table_dtype=torch.float16
    )
    mask = mask.clone()
    mask[0, 3:40:2] = False
    check(
        (keys, values, mask, *tables), Options(heads=1, implementation="triton"), 2e-3
    )


def test_only_padding_gives_the_bias():
    keys, values, mask, *tables = inputs(32, 20, torch.float32)
    logits, *gradients = run(
        (keys, values, torch.zeros_like(mask), *tables),
        Options(heads=1, implementation="triton"),
    )
    torch.testing.assert_close(logits, tables[2].expand_as(logits))
    assert all(x.isfinite().all() for x in gradients)


def test_keeps_only_what_backward_needs():
    tensors = inputs(32, 500, torch.float32)
    logits = label_attention(*tensors, Options(heads=1, implementation="triton"))
    saved = logits.grad_fn.next_functions[0][0].saved_tensors
    own = [
        x.numel() for x in saved if all(x.data_ptr() != y.data_ptr() for y in tensors)
    ]
    packed = 2 * tensors[0].numel()  # padding lies behind the documents
    assert sum(own) <= packed + 2 * logits.numel() + len(LENGTHS) + 1

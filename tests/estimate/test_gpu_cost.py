"""Hours on GPUs: operations against what PyTorch counts, shares that were measured, costs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from xmtc.config.load import load_config
from xmtc.distributed.cards import CARDS
from xmtc.estimate.gpu_cost import backbone_operations, costs_by_card, share_of_rate
from xmtc.estimate.memory import meta_classifier
from xmtc.estimate.size import Size
from xmtc.models.operations import forward_operations, training_operations
from xmtc.run.config import RunConfig

CONFIGS = Path(__file__).parents[2] / "configs"
SIZE = Size(
    train=1000, dev=100, test=100, tokens=200, longest=600, labels=300, vocab_size=500
)


def encoder_of(*overrides: str) -> torch.nn.Module:
    config = load_config(RunConfig, CONFIGS / "smoke_llama.yaml", overrides)
    return config.model.encoder.build(500)


def counted(module: torch.nn.Module, *, train: bool) -> float:
    """What PyTorch counts of products with weights, for a token."""
    ids = torch.arange(5, 37)[None]
    with FlopCounterMode(display=False) as counter:
        hidden = module(ids, torch.ones_like(ids, dtype=torch.bool))
        if train:
            hidden.square().mean().backward()
    of_products = 0
    for operation, count in counter.get_flop_counts()["Global"].items():
        if "mm" in str(operation) and "bmm" not in str(operation):
            of_products += count
    return of_products / 32


@pytest.mark.parametrize("train", [False, True])
def test_operations_are_those_that_pytorch_counts(train):
    encoder = encoder_of("model.encoder.lora=null")
    trained = {id(parameter) for parameter in encoder.parameters()}
    expected = (
        training_operations(encoder, trained) if train else forward_operations(encoder)
    )
    assert expected == pytest.approx(counted(encoder, train=train), rel=0.02)


def test_a_frozen_backbone_with_adapters_needs_no_gradients_of_its_weights():
    encoder = encoder_of("model.encoder.lora={}")
    trained = {
        id(parameter)
        for name, parameter in encoder.named_parameters()
        if "lora_" in name
    }
    forward = forward_operations(encoder)
    assert training_operations(encoder, trained) == pytest.approx(2 * forward, rel=0.01)
    assert training_operations(encoder, set()) == forward


def test_the_share_of_the_measured_decoder_is_what_was_measured():
    rate = CARDS["H200"].bf16_tflop_per_s
    assert rate is not None
    assert share_of_rate(4096) * rate / 790 == pytest.approx(0.43, abs=0.005)
    assert (
        share_of_rate(384)
        < share_of_rate(1024)
        < share_of_rate(4096)
        == share_of_rate(8192)
    )


def test_an_8b_decoder_takes_hours_that_follow_from_its_weights():
    config = load_config(RunConfig, CONFIGS / "mimic4_llama3.yaml")
    classifier = meta_classifier(config, SIZE)
    operations = backbone_operations(config, replace(SIZE, dev=0), classifier)
    weights = 7.0e9
    # an epoch of the head, which runs forward; one of the upper half; three of all adapters
    operations_per_token = 2 * weights + 3 * weights + 3 * 4 * weights
    assert operations["finetune"] == pytest.approx(
        operations_per_token * SIZE.train * SIZE.tokens, rel=0.01
    )
    costs = {cost.card: cost for cost in costs_by_card(config, 1e18, 4096, 70 * 2**30)}
    assert costs["H200"].measured
    assert not costs["H100"].measured
    assert costs["A100-80G"].hours == pytest.approx(costs["H100"].hours * 989 / 312)
    assert "A100" not in costs, "40 GiB hold no worker of 70"
    assert "T4" not in costs

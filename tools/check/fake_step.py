"""A training step of LLaMA-3-8B with LoRA, on tensors that have shapes and no values: no weights, no GPU, no memory.

    .venv/bin/python tools/check/fake_step.py
    .venv/bin/python tools/check/fake_step.py --layers 2 --tokens 512

Prints one JSON line: the products of the step, those that `gpu.py` counts as useful, tokens per second at its bar on an
H100 (useful products at 45 % of 989 TFLOP/s), and the operation at which the host would first wait for the GPU, if any.
Exit status 1 if it waits.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch._subclasses.fake_tensor import FakeTensorMode as Fake
from torch.utils.flop_counter import FlopCounterMode

import gpu
from xmtc.config.load import load_config
from xmtc.estimate.memory import backbone_shape
from xmtc.run.config import RunConfig

RATE, SHARE = 989e12, 0.45
"""Products of a second in bf16 (NVIDIA H100 SXM data sheet, dense), and the bar for the share of them."""


def without_values(model: nn.Module, mode: Fake) -> None:
    """Make tensors on `meta` tensors without values of the CPU, in place."""
    for module in model.modules():
        for name, table in module._parameters.items():
            if table is not None:
                fake = FakeTensor(mode, table.detach(), torch.device("cpu"))
                module._parameters[name] = nn.Parameter(
                    fake, requires_grad=table.requires_grad
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = FakeTensor(
                    mode, buffer.to("meta"), torch.device("cpu")
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the step; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, help="of the backbone, instead of all")
    parser.add_argument("--documents", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--labels", type=int, default=8000)
    given = parser.parse_args(arguments)
    shape = backbone_shape(
        load_config(RunConfig, gpu.ROOT / "configs/mimic4_llama3.yaml")
    )
    assert shape is not None
    shape = shape | ({"num_hidden_layers": given.layers} if given.layers else {})
    with torch.device("meta"):
        classifier = gpu.lora_classifier(shape, given.tokens, given.labels)
    mode, waits = Fake(), None
    without_values(classifier, mode)
    counter, as_on_a_gpu = (
        FlopCounterMode(display=False),
        patch("xmtc.models.kernels.dispatch.choose_implementation"),
    )
    with mode, torch.device("cpu"), counter, as_on_a_gpu as chosen:
        chosen.return_value = "sdpa"
        batch = gpu.random_documents(given.documents, given.tokens, shape["vocab_size"])
        try:
            gpu.lora_step(classifier, batch)()
        except (DataDependentOutputException, DynamicOutputShapeException) as wait:
            waits = str(wait.func)
    tokens = given.documents * given.tokens
    useful = 4 * gpu.multiplied_weights(classifier) * tokens
    figures = {"layers": shape["num_hidden_layers"], "tokens": tokens}
    figures |= {
        "tflop": round(counter.get_total_flops() / 1e12, 1),
        "useful_tflop": round(useful / 1e12, 1),
    }
    figures |= {"tokens_per_s_at_the_bar": round(tokens * RATE * SHARE / useful)}
    print(
        json.dumps(
            {"name": "fake step", **figures, "waits_at": waits, "holds": waits is None}
        )
    )
    return 0 if waits is None else 1


if __name__ == "__main__":
    sys.exit(main())

"""Documents that an encoder reads in a second of one core: PyTorch, PyTorch with oneDNN's layers, and OpenVINO.

    pip install openvino
    OMP_NUM_THREADS=1 python tools/bench/encoding.py

The engines take turns on the same documents, and seconds are the process's own, so that other programs on the machine
cost all of them alike. Each line is {"engine", "precision", "documents_per_s", "ratio", "largest_error"}: the median of
the rounds, its ratio to PyTorch in float32, and the largest absolute difference of a state to PyTorch's in float32.
oneDNN's layers (`torch.utils.mkldnn`) come with PyTorch, which takes MKL's for float32 by default.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.mkldnn import MkldnnLinear
from transformers import AutoModel, PreTrainedModel

from xmtc.data.pretrained import resolve_pretrained

Encode = Callable[[], NDArray[np.float32]]


class States(nn.Module):
    """A model that returns its last hidden states alone, which OpenVINO can trace."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Compute the states (N, T, D) of tokens (N, T)."""
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="packaged:all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    engines = prepare(arguments.encoder, arguments.documents, arguments.tokens)
    reference = engines["PyTorch", "float32"]()
    errors = {
        name: float(np.abs(encode() - reference).max())
        for name, encode in engines.items()
    }
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in engines}
    for _ in range(arguments.rounds):
        for name, encode in engines.items():
            began = time.process_time()
            encode()
            seconds[name].append(time.process_time() - began)
    slowest = median(seconds["PyTorch", "float32"])
    for name, taken in seconds.items():
        engine, precision = name
        line = {
            "engine": engine,
            "precision": precision,
            "documents_per_s": round(arguments.documents / median(taken), 1),
            "ratio": round(slowest / median(taken), 2),
            "largest_error": float(f"{errors[name]:.1e}"),
        }
        print(json.dumps(line), flush=True)


def prepare(name: str, documents: int, tokens: int) -> dict[tuple[str, str], Encode]:
    """Load the encoder into each engine. Return what encodes the same random documents."""
    place = resolve_pretrained(name)
    states = States(AutoModel.from_pretrained(place)).eval()
    with_onednn = States(AutoModel.from_pretrained(place)).eval()
    use_onednn(with_onednn)
    torch.manual_seed(1)
    words = states.model.config.vocab_size
    inputs = {"input_ids": torch.randint(1_000, words, (documents, tokens))}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])

    def by_torch(model: States, *, bfloat16: bool) -> Encode:
        def encode() -> NDArray[np.float32]:
            autocast = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
            with torch.inference_mode(), autocast:
                return model(**inputs).float().numpy()

        return encode

    traced = openvino.convert_model(states, example_input=inputs)
    arrays = {key: value.numpy() for key, value in inputs.items()}

    def by_openvino(precision: str) -> Encode:
        options = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": 1,
            "NUM_STREAMS": 1,
        }
        compiled = openvino.Core().compile_model(traced, "CPU", options)
        return lambda: compiled(arrays)[0]

    return {
        ("PyTorch", "float32"): by_torch(states, bfloat16=False),
        ("PyTorch with oneDNN", "float32"): by_torch(with_onednn, bfloat16=False),
        ("OpenVINO", "float32"): by_openvino("f32"),
        ("PyTorch", "bfloat16"): by_torch(states, bfloat16=True),
        ("OpenVINO", "bfloat16"): by_openvino("bf16"),
    }


def use_onednn(module: nn.Module) -> None:
    """Replace every linear layer by one with oneDNN's weights, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, MkldnnLinear(child, torch.float))
        else:
            use_onednn(child)


if __name__ == "__main__":
    main()

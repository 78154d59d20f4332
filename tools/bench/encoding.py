"""Documents that an encoder reads in a second of one core: PyTorch, PyTorch with oneDNN's layers, and OpenVINO.

    pip install 'xmtc[openvino]'
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
from functools import partial
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.mkldnn import MkldnnLinear
from transformers import AutoModel, PreTrainedModel

from xmtc.data.pretrained import resolve_pretrained
from xmtc.models.encoders.openvino_engine import OpenVinoEngine

Encode = Callable[[], NDArray[np.float32]]


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
    model = AutoModel.from_pretrained(place).eval()
    with_onednn = AutoModel.from_pretrained(place).eval()
    use_onednn(with_onednn)
    engine = OpenVinoEngine(model)
    torch.manual_seed(1)
    ids_NT = torch.randint(1_000, model.config.vocab_size, (documents, tokens))
    mask_NT = torch.ones_like(ids_NT)

    def encode(
        states: Callable[[Tensor, Tensor], Tensor], *, bfloat16: bool
    ) -> NDArray[np.float32]:
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
        with torch.inference_mode(), autocast:
            return states(ids_NT, mask_NT).float().numpy()

    def by_torch(model: PreTrainedModel) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda ids_NT, mask_NT: model(ids_NT, mask_NT).last_hidden_state

    return {
        ("PyTorch", "float32"): partial(encode, by_torch(model), bfloat16=False),
        ("PyTorch with oneDNN", "float32"): partial(
            encode, by_torch(with_onednn), bfloat16=False
        ),
        ("OpenVINO", "float32"): partial(encode, engine, bfloat16=False),
        ("PyTorch", "bfloat16"): partial(encode, by_torch(model), bfloat16=True),
        ("OpenVINO", "bfloat16"): partial(encode, engine, bfloat16=True),
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

"""Linear layers that keep their weights in bfloat16 as well, for prediction."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


def keep_bfloat16(module: nn.Module) -> None:
    """Let linear layers on the CPU keep a copy of their weights, which takes half as much memory.

    Autocast would make it in every pass, a sixth of the time of a short document. Results stay the same.
    """
    for layer in module.modules():
        if type(layer) is not nn.Linear or layer.weight.dtype != torch.float32:
            continue
        weight = layer.weight.detach().bfloat16()
        bias = None if layer.bias is None else layer.bias.detach().bfloat16()
        layer.forward = partial(_apply, layer, weight, bias)


def _apply(
    layer: nn.Linear, weight: Tensor, bias: Tensor | None, input: Tensor
) -> Tensor:
    """Apply the copy under autocast, and the layer itself otherwise."""
    if torch.is_autocast_enabled("cpu"):
        return linear(input, weight, bias)
    return linear(input, layer.weight, layer.bias)

"""Linear layers that keep their weights in bfloat16 as well, for prediction."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


def keep_bfloat16(module: nn.Module) -> None:
    """Let linear layers on the CPU keep a copy of their weights, which takes half as much memory.

    Autocast would make it in every pass, a sixth of the time of a short document. Results stay the same.
    """
    for one in module.modules():
        if type(one) is nn.Linear and one.weight.dtype == torch.float32:
            bias = None if one.bias is None else one.bias.detach().bfloat16()
            one.forward = partial(_apply, one, one.weight.detach().bfloat16(), bias)


def _apply(layer: nn.Linear, weight: Tensor, bias: Tensor | None, input: Tensor) -> Tensor:
    autocast = torch.is_autocast_enabled("cpu")
    return linear(input, weight, bias) if autocast else linear(input, layer.weight, layer.bias)

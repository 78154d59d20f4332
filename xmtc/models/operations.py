"""How many floating-point operations a token takes in an encoder, from its shape.

Only products with weights count, as the share of a card's rate usually does: a product with W weights takes 2 W
operations for each token, and as many for each of its two gradients. What attention multiplies, what is computed again
for the backward pass, and padding are left out, so that the counts are lower bounds.
"""

from collections.abc import Collection, Sequence

from torch import nn


def products(module: nn.Module) -> list[nn.Module]:
    """List the layers that multiply every token by their weights, without adapters."""
    kinds = nn.Linear | nn.Conv1d | nn.RNNBase
    return [
        layer
        for name, layer in module.named_modules()
        if isinstance(layer, kinds) and "lora_" not in name
    ]


def forward_operations(encoder: nn.Module) -> float:
    """Count the operations of a token in a forward pass."""
    return 2.0 * sum(_weights(layer) for layer in products(encoder))


def training_operations(encoder: nn.Module, trained: Collection[int]) -> float:
    """Count the operations of a token in a forward and a backward pass.

    The gradients of activations are needed from the lowest trained layer upwards, those of weights in trained layers
    only. Frozen layers with adapters need the first kind.

    Args:
        encoder: the encoder; it may lie on the meta device.
        trained: ids of the parameters that train.
    """
    layers = products(encoder)
    lowest = _lowest_trained(encoder, layers, trained)
    above = sum(_weights(layer) for layer in layers[lowest:])
    own = sum(_weights(layer) for layer in layers if _trains(layer, trained))
    return forward_operations(encoder) + 2.0 * above + 2.0 * own


def _lowest_trained(
    encoder: nn.Module, layers: Sequence[nn.Module], trained: Collection[int]
) -> int:
    """Find the place of the lowest layer above a trained parameter; all layers lie below, if no parameter trains."""
    place_by_layer = {id(layer): place for place, layer in enumerate(layers)}
    next_place = 0
    for module in encoder.modules():
        if id(module) in place_by_layer:
            next_place = place_by_layer[id(module)]
        if any(
            id(parameter) in trained for parameter in module.parameters(recurse=False)
        ):
            return next_place
    return len(layers)


def _trains(layer: nn.Module, trained: Collection[int]) -> bool:
    """Whether the layer's own weights train; adapters beside them do not count."""
    return any(
        id(parameter) in trained for parameter in layer.parameters(recurse=False)
    )


def _weights(layer: nn.Module) -> int:
    """Count the weights of a layer; quantised ones are packed, and are counted by the layer's shape."""
    if isinstance(layer, nn.Linear):
        return layer.in_features * layer.out_features
    return sum(
        parameter.numel() for parameter in layer.parameters() if parameter.ndim > 1
    )

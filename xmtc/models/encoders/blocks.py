"""Find the layers of Transformers models."""

from torch import nn

from xmtc.errors import ConfigError

_BLOCK_LISTS = ("layers", "encoder.layer", "encoder.layers", "h", "transformer.layer", "transformer.layers")


def blocks_of(transformer: nn.Module) -> nn.ModuleList:
    """Find the layers of a model, from the bottom to the top.

    Raises:
        ConfigError: the architecture uses an unknown name for them.
    """
    for path in _BLOCK_LISTS:
        try:
            found = transformer.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList):
            return found
    raise ConfigError(
        f"model.encoder: cannot find the layers of {type(transformer).__name__}; use another architecture"
    )

"""Where Transformers models keep their layers."""

from torch import nn

from xmtc.errors import ConfigError

_BLOCK_LISTS = ("layers", "encoder.layer", "encoder.layers", "h", "transformer.layer", "transformer.layers")


def blocks_of(transformer: nn.Module) -> nn.ModuleList:
    """The layers of a model, from the bottom.

    Raises:
        ConfigError: the architecture keeps them under no name that is known here.
    """
    for path in _BLOCK_LISTS:
        try:
            found = transformer.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList):
            return found
    raise ConfigError(f"model.encoder: {type(transformer).__name__} keeps its layers under no name that is known here")

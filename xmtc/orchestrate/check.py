"""What no run can do, found before it begins."""

from xmtc.config.schema import RunConfig
from xmtc.errors import ConfigError
from xmtc.models.heads import LabelAttentionConfig


def check(config: RunConfig) -> None:
    """Refuse what cannot work before hours are spent on it.

    Raises:
        ConfigError: planting without a label-attention head.
    """
    if config.plant.enabled and not isinstance(config.model.head, LabelAttentionConfig):
        raise ConfigError(
            f"plant.enabled: true needs a head with label attention, but model.head.kind is {config.model.head.kind}; "
            "set plant.enabled=false"
        )

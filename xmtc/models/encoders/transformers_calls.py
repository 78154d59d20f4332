"""Call Transformers without its output, without running code from a model's folder, and with errors that name a fix."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from transformers.utils import logging as hf_logging

from xmtc.errors import ConfigError

Loaded = TypeVar("Loaded")


def load_quietly(name: str, load: Callable[..., Loaded], *arguments: object, **options: object) -> Loaded:
    """Call a loader of Transformers without its output, and without running code from the model's folder.

    Args:
        name: the model's name in the configuration, for the message.
        load: the loader.
        *arguments: what the loader takes.
        **options: what it takes by name.

    Raises:
        ConfigError: the loader failed, for whatever reason.
    """
    try:
        with quiet():
            return load(*arguments, trust_remote_code=False, **options)
    except Exception as error:  # the library has no error class
        raise ConfigError(
            f"model.encoder.name: cannot load {name!r}: {first_line(error)} {_remedy(Path(name))}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Transformers' load reports and progress bars; xmtc raises a ConfigError for what matters."""
    verbosity = hf_logging.get_verbosity()
    shows_progress = hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if shows_progress:
            hf_logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    message = str(error) or type(error).__name__
    return message.splitlines()[0]


def _remedy(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "The folder holds PEFT adapters: merge them into their model (`merge_and_unload`), and save that."
    if folder.is_dir():
        return "If a file is missing or damaged, copy the whole folder of the model again."
    return (
        f"If this machine cannot reach the hub, run `hf download {folder} --local-dir FOLDER` on one that can, and "
        "give the copied folder as the name."
    )

"""Call Transformers without its output, without running code from a model's folder, and with errors that name a fix."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from transformers.utils import logging as hf_logging

from xmtc.errors import ConfigError

Loaded = TypeVar("Loaded")


def load_quietly(
    name: str, load: Callable[..., Loaded], *arguments: object, **options: object
) -> Loaded:
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
            f"model.encoder.name: cannot load {name!r}: {_problem_and_remedy(name, error)}"
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


def _problem_and_remedy(name: str, error: Exception) -> str:
    problem = first_line(error)
    folder = Path(name)
    if (folder / "adapter_config.json").is_file():
        return f"{problem} The folder holds PEFT adapters: merge them into their model (`merge_and_unload`), save that."
    if any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors")):
        return (
            "its weights are in a .bin file, a pickle, which can run code when it is loaded, so that xmtc reads only "
            f"safetensors. If you trust the file, run `AutoModel.from_pretrained({name!r}).save_pretrained({name!r})` "
            "with Transformers, which writes a model.safetensors beside it."
        )
    if folder.suffix.lower() == ".gguf":
        return (
            f"{problem} If the file is damaged, copy it again; of some architectures, "
            "Transformers reads no GGUF files."
        )
    if folder.is_dir():
        return f"{problem} If a file is missing or damaged, copy the whole folder of the model again."
    if "use_safetensors" in str(error):
        return (
            "it has no model.safetensors, and xmtc reads nothing else, because a pytorch_model.bin is a pickle, which "
            "can run code when it is loaded. Many such models have a converted copy on the Hub: look at the model's "
            f"pull requests, and give its revision, such as {name}@refs/pr/1."
        )
    return (
        f"{problem} If this machine cannot reach the hub, run `{_download(name)}` on one that can, and give the copied "
        "folder as the name."
    )


def _download(name: str) -> str:
    location, _, revision = name.partition("@")
    chosen = f" --revision {revision}" if revision else ""
    return f"hf download {location}{chosen} --local-dir FOLDER"

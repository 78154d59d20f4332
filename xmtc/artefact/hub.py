"""Download models from the Hugging Face Hub, and upload them."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from xmtc.artefact.output import check_replaceable, model_files, model_of_run
from xmtc.artefact.trial import try_native_files
from xmtc.errors import CheckpointError, ConfigError, StorageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"({_PART}/{_PART})(?:@(\S+))?")
_ALWAYS_THERE = frozenset({".gitattributes", "README.md"})
_CONFIG = "config.json"
_LOCAL = frozenset({"runs", "models", "outputs", "checkpoints"})
"""Usual folders of runs and models; as an owner on the Hub, nobody means them."""


def locate_model(model: str | Path) -> Path:
    """Find the local folder of a model; a repository of the Hub is downloaded first.

    Local paths take precedence: `owner/name` is a repository only if there is no file or folder `owner` here.

    Args:
        model: a model's folder or a run's, or `owner/name`, or `owner/name@revision`.

    Raises:
        CheckpointError: the repository does not exist, or has no model of xmtc; or this names a folder of runs or
            models, such as `runs/news`, and there is no such folder here.
        ConfigError: this is no name.
        StorageError: the Hub does not answer, and its cache lacks the model.
    """
    if not isinstance(model, str | PathLike):
        raise ConfigError(
            f"a {type(model).__name__} is no model: give its folder, or owner/name on the Hub"
        )
    name = _REPOSITORY.fullmatch(model) if isinstance(model, str) else None
    if name is None:
        return model_of_run(Path(model))
    owner = Path(name[1]).parent
    if owner.exists():
        return model_of_run(Path(model))
    if owner.name in _LOCAL:
        raise CheckpointError(
            f"{model}: no such folder in {Path.cwd()}; start xmtc in the folder that holds {owner}/, or give the path "
            "of the model"
        )
    return _pulled(name[1], name[2])


def _pulled(repository: str, revision: str | None) -> Path:
    """Download the settings, then the files that they name, and nothing else."""
    from huggingface_hub import HfApi

    api = HfApi(library_name="xmtc")
    with _explained(repository):
        settings = _settings(api, repository, revision)
        names = set() if settings is None else model_files(settings.read_bytes())
        if settings is None or not names:
            raise CheckpointError(
                f"{repository}: no model of xmtc is there; upload one with `xmtc push`"
            )
        commit = settings.parent.name
        folder = Path(
            api.snapshot_download(
                repository, revision=commit, allow_patterns=sorted(names)
            )
        )
    try_native_files(folder)
    return folder


def _settings(
    api: "HfApi", repository: str, revision: str | None = None
) -> Path | None:
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return Path(api.hf_hub_download(repository, _CONFIG, revision=revision))
    except RemoteEntryNotFoundError:
        return None


def push(model: Path, repository: str, *, public: bool = False) -> str:
    """Upload an exported model and return its address.

    Args:
        model: folder that `xmtc train` or `xmtc export` wrote.
        repository: `owner/name`; it is created if needed, and an earlier model in it is replaced.
        public: whether everyone can read a new repository.

    Raises:
        CheckpointError: the folder has no model, or the model is damaged.
        ConfigError: the name is not a repository's, or the repository has other content.
        StorageError: the Hub does not answer, or refuses.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    from xmtc.artefact.info import read_info

    name = _REPOSITORY.fullmatch(repository)
    if name is None or name[2]:
        raise ConfigError(
            f"{repository}: not the name of a repository; give owner/name"
        )
    read_info(model)
    files = model_files((model / _CONFIG).read_bytes())
    api = HfApi(library_name="xmtc")
    added = [
        CommitOperationAdd(name, model / name)
        for name in sorted(files)
        if (model / name).is_file()
    ]
    message = f"Model {model.resolve().parent.name}, uploaded by xmtc"
    with _explained(repository), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="It seems that you are about to commit a data file"
        )  # labels.arrow
        url = api.create_repo(repository, private=not public, exist_ok=True)
        removed = [
            CommitOperationDelete(name)
            for name in sorted(_replaceable(api, repository) - files)
        ]
        api.create_commit(
            repository, [*removed, *added], commit_message=message
        )  # one commit: never half a model
    return str(url)


def _replaceable(api: "HfApi", repository: str) -> set[str]:
    """List the files of the repository's model.

    Raises:
        ConfigError: the repository has other content.
    """
    names = set(api.list_repo_files(repository))
    settings = _settings(api, repository)
    content = None if settings is None else settings.read_bytes()
    check_replaceable(repository, names - _ALWAYS_THERE, content)
    return model_files(content) & names


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Convert the errors of the Hub's client to xmtc's, in one line."""
    from httpx2 import HTTPError
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise StorageError(
            f"{repository}: access is on request; ask there, then run `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{repository}: no such folder here, and no such repository on the Hub; if it is private, set HF_TOKEN or "
            "run `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(
            f"{repository}: the repository has no such revision"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        fix = (
            "HF_HUB_OFFLINE is set: unset it"
            if constants.HF_HUB_OFFLINE
            else "the Hub cannot be reached: connect"
        )
        raise StorageError(
            f"{repository}: neither here nor in the Hub's cache, and {fix}, or copy the model folder to this machine"
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        said = " ".join((error.server_message or "no reason given").split())
        fix = (
            "set HF_TOKEN to a token that may write there"
            if status in (401, 403)
            else "correct this, or try later"
        )
        raise StorageError(
            f"{repository}: the Hub answers {status} ({said}); {fix}"
        ) from error
    except (HTTPError, errors.LocalTokenNotFoundError) as error:
        raise StorageError(
            f"{repository}: no answer of the Hub ({type(error).__name__}); check the network"
        ) from error
    except ValueError as error:  # its client checks names, tokens and model cards
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{repository}: {reason}; correct the name, the model's README.md or HF_TOKEN"
        ) from error

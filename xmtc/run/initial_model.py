"""Find the model that a run continues from."""

from pathlib import Path

from xmtc.artefact.hub import locate_model
from xmtc.errors import ConfigError
from xmtc.run.copies import fetch
from xmtc.run.directory import RunDirectory, RunPaths


def initial_model_folder(paths: RunPaths) -> Path:
    """Find the folder of the exported model that `model.init_from` names; fetch it if it is at a URI.

    Raises:
        ConfigError: there is no model.
        CheckpointError, StorageError: it cannot be fetched.
    """
    assert paths.init_from is not None
    place = locate_model(str(fetch(paths.init_from, paths.storage)))
    given = f"model.init_from: {paths.init_from}"
    folder = found if (found := RunDirectory(place).model).is_dir() else place
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{given}: no exported model there; give the `model` folder of a run")
    return folder

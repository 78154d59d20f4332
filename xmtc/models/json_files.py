"""JSON files of an exported model."""

from pathlib import Path
from typing import Any

from xmtc import files
from xmtc.errors import CheckpointError


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        CheckpointError: the file is missing or damaged, or has a key twice.
    """
    try:
        return files.read_json(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing; give the `model` folder of a run") from error
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}): copy the whole model folder again, or export the model again"
        ) from error

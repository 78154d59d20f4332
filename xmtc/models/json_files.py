"""JSON files of an exported model."""

from pathlib import Path
from typing import Any

from xmtc import files
from xmtc.errors import CheckpointError
from xmtc.files import reading


def read_model_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        CheckpointError: the file is missing or damaged, or has a key twice.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: missing; give the `model` folder of a run")
    with reading(path, CheckpointError, "copy the whole model folder again, or export the model again"):
        return files.read_json(path)

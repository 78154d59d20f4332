"""JSON files of an exported model."""

import json
from pathlib import Path
from typing import Any

from xmtc.errors import CheckpointError


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        CheckpointError: the file is missing or damaged, or has a key twice.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once_each)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing; give the `model` folder of a run") from error
    except RecursionError:
        raise CheckpointError(f"{path}: thousands of lists in lists: copy the whole model folder again") from None
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}): copy the whole model folder again, or export the model again"
        ) from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for key in content if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return content

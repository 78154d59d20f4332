"""The names of a run's checkpoints."""

import re


def of_a_checkpoint(name: str) -> bool:
    """Whether a file of a run directory belongs to a checkpoint; only `CheckpointStore` copies such files."""
    return re.search(r"(^|/)step_\d{8,}/", name) is not None

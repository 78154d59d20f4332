"""Compare the training losses of two runs, step by step, where a resumed run counts its last word on a step.

.venv/bin/python tools/same_losses.py runs/a runs/b
"""

import json
import sys
from pathlib import Path

_TOLERANCE = 1e-5


def losses(run: Path) -> dict[tuple[str, int], float]:
    """(stage, step) -> loss."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {(row["stage"], row["step"]): row["train/loss"] for row in rows if "train/loss" in row}


def main() -> None:
    """Print a JSON line; exit with 1 where they differ."""
    first, second = (losses(Path(argument)) for argument in sys.argv[1:3])
    same_steps = first.keys() == second.keys()
    shared = first.keys() & second.keys()
    worst = max((abs(first[step] - second[step]) for step in shared), default=float("inf"))
    holds = same_steps and worst <= _TOLERANCE
    final = max(shared, default=None)
    result = {
        "name": "largest difference of the losses",
        "ratio": worst,
        "bar": _TOLERANCE,
        "steps": [len(first), len(second)],
        "final_losses": [first[final], second[final]] if final else None,
        "holds": holds,
    }
    print(json.dumps(result))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()

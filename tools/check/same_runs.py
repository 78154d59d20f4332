"""Compare two runs: the training losses, step by step, and the metrics that they end with.

.venv/bin/python tools/check/same_runs.py runs/a runs/b

Of a resumed run, metrics.jsonl holds the last word on every step. Prints a JSON line each; exit 1 where they differ.
"""

import json
import sys
from pathlib import Path
from typing import Any

_TOLERANCE = 1e-5


def losses(run: Path) -> dict[str, float]:
    """`stage step` -> loss."""
    rows = map(
        json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return {
        f"{row['stage']} {row['step']}": row["train/loss"]
        for row in rows
        if "train/loss" in row
    }


def metrics(run: Path) -> dict[str, float]:
    """`split metric` -> value, of every evaluated split; times left out."""
    found = {}
    for path in sorted(run.glob("eval/*/metrics.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        numbers = {
            k: v
            for k, v in content.items()
            if isinstance(v, int | float) and k != "seconds"
        }
        found |= {
            f"{path.parent.name} {name}": float(value)
            for name, value in numbers.items()
        }
    return found


def compare(
    what: str, first: dict[str, float], second: dict[str, float]
) -> dict[str, Any]:
    """Holds where both have the same entries, at least one, with the same values."""
    shared = first.keys() & second.keys()
    worst = max((abs(first[key] - second[key]) for key in shared), default=float("inf"))
    last = max(shared, key=list(first).index, default=None)
    return {
        "name": f"largest difference of the {what}",
        "ratio": worst,
        "bar": _TOLERANCE,
        "compared": [len(first), len(second)],
        "last": {last: [first[last], second[last]]} if last else None,
        "holds": first.keys() == second.keys() and worst <= _TOLERANCE,
    }


def main() -> None:
    """Compare the two run directories that are the arguments."""
    first, second = Path(sys.argv[1]), Path(sys.argv[2])
    results = [
        compare(read.__name__, read(first), read(second)) for read in (losses, metrics)
    ]
    for result in results:
        print(json.dumps(result))
    sys.exit(0 if all(result["holds"] for result in results) else 1)


if __name__ == "__main__":
    main()

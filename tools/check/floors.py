"""Print the oldest versions that pyproject.toml allows, as requirements for pip: `python tools/check/floors.py`.

PyTorch is left out: its floor is the version that is developed with.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

EXTRAS = ("train", "quantize")


def floors(project: dict[str, Any]) -> list[str]:
    """The oldest version of every package that the project or one of `EXTRAS` needs."""
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in EXTRAS for one in extras[name]),
    ]
    return [one.replace(">=", "==") for one in wanted if not re.match(r"torch\b", one)]


def main() -> None:
    path = Path(__file__).parents[2] / "pyproject.toml"
    print(*floors(tomllib.loads(path.read_text(encoding="utf-8"))["project"]), sep="\n")


if __name__ == "__main__":
    main()

"""Memory of one worker, disk and steps of a configuration, without weights and without a GPU.

python tools/check/estimate.py configs/mimic4_llama3.yaml --gpus 8 --documents 90000 --labels 8000 --tokens 2600
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from xmtc.config.load import load_config
from xmtc.estimate.estimate import estimate
from xmtc.estimate.size import size_of
from xmtc.preflight.dry_run import print_estimate
from xmtc.run.config import RunConfig


def main() -> None:
    """Read the arguments, estimate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument(
        "--gpus", type=int, help="workers, instead of distributed.workers"
    )
    parser.add_argument(
        "--documents",
        type=int,
        help="training documents, where the corpus is not prepared",
    )
    parser.add_argument("--tokens", type=float, help="mean tokens of a document")
    parser.add_argument("--labels", type=int, help="labels")
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of a table"
    )
    arguments = parser.parse_args()
    config = load_config(RunConfig, arguments.config, arguments.overrides)
    given = {
        "train": arguments.documents,
        "tokens": arguments.tokens,
        "labels": arguments.labels,
    }
    size = replace(
        size_of(config),
        **{name: value for name, value in given.items() if value is not None},
    )
    found = estimate(config, size, arguments.gpus)
    if arguments.json:
        print(json.dumps(asdict(found) | {"peak": found.peak}))
    else:
        print_estimate(config, found)


if __name__ == "__main__":
    main()

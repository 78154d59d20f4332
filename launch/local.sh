#!/usr/bin/env bash
# A run on the GPUs (or cores) of this machine, in a separate Ray that ends with it:
#   launch/local.sh configs/smoke_llama.yaml [KEY=VALUE]...
# With no `distributed.address`, Ray starts on this machine for this run alone and joins no other cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 1 ]] || { echo "usage: launch/local.sh CONFIG [KEY=VALUE]..." >&2; exit 2; }
unset RAY_ADDRESS   # an address in the environment would attach the run to that cluster
PYTHON=${PYTHON:-.venv/bin/python}
exec "$PYTHON" launch/train.py "$@"

#!/usr/bin/env bash
# The cluster path, tried on one machine: a Ray head on loopback with a token, the tiny LLaMA on two ZeRO-2 workers through
# `ray job submit` over clinical cases in MIMIC-IV's layout, once undisturbed and once with a worker killed (SIGKILL) in
# stage 1 and another in stage 2. Exit 0 only when losses, step by step, and the final metrics of both runs agree.
#   tools/check/submit_demo.sh [FOLDER] [KEY=VALUE]...
# FOLDER (a new temporary one by default) keeps runs, logs and the token. MIMIC is the folder with hosp/ and note/; without
# one the documents are the docstrings of installed packages.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${XMTC_BIN:-$ROOT/.venv/bin}
WORK=$(realpath "${1:-$(mktemp -d)}")
shift || true
mkdir -p "$WORK"
PORT=${PORT:-26379} DASHBOARD=${DASHBOARD:-28265}
MIMIC=${MIMIC:-$ROOT/data/mimic4_layout}
SOURCE=()
[[ -d $MIMIC ]] && SOURCE=("data.source={kind: mimic, directory: $(realpath "$MIMIC"), min_code_documents: 2}")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$WORK/token RAY_USAGE_STATS_ENABLED=0
(umask 077 && "$BIN/python" -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH")
unset RAY_ADDRESS

HEAD=
finish() { kill -TERM "$HEAD" 2>/dev/null || true; wait "$HEAD" 2>/dev/null || true; }
trap finish EXIT
start_head() {
    # `--block` keeps everything that this head starts below one process, which is ended by its number.
    PYTHONUNBUFFERED=1 "$BIN/ray" start --head --block --node-ip-address=127.0.0.1 --port="$PORT" \
        --dashboard-host=127.0.0.1 --dashboard-port="$DASHBOARD" --num-cpus=4 --temp-dir="$WORK/ray" \
        > "$WORK/head.log" 2>&1 &
    HEAD=$!
    while kill -0 "$HEAD" 2>/dev/null; do
        grep -q "Ray runtime started" "$WORK/head.log" && return
        sleep 0.5
    done
    return 1
}
# Ray gives up a node that is not up in 30 s, which happens where other work has the machine.
start_head || start_head || start_head || { tail -n 30 "$WORK/head.log" >&2; exit 1; }

submit() {   # submit NAME [KEY=VALUE]...
    local name=$1
    shift
    # The entry point runs where Ray likes: every path is absolute.
    "$BIN/ray" job submit --address "http://127.0.0.1:$DASHBOARD" --submission-id "$name-$$" -- \
        "$BIN/python" "$ROOT/launch/train.py" "$ROOT/configs/smoke_llama.yaml" "name=$name" \
        "track.directory=$WORK/runs" "data.corpus=$WORK/corpus" "${SOURCE[@]}" "$@" > "$WORK/$name.log" 2>&1
}
steps() { grep -c "\"stage\": *\"$2\"" "$WORK/runs/$1/metrics.jsonl" 2>/dev/null || true; }
kill_worker_in() {   # kill_worker_in STAGE: beyond its first checkpoint, while the job runs
    local victim=
    while [[ -z $victim ]] && kill -0 "$JOB" 2>/dev/null; do
        if [[ $(steps disturbed "$1") -ge 6 ]]; then
            victim=$("$BIN/python" "$ROOT/tools/check/find_worker.py" "$HEAD")
        fi
        sleep 0.1
    done
    [[ -n $victim ]] && kill -KILL "$victim" || { echo "the job ended before a worker could be killed in $1" >&2; return 1; }
    echo "killed worker $victim in $1, $(steps disturbed "$1") steps logged"
}

BEGAN=$SECONDS
echo "undisturbed run …"
submit undisturbed "$@" || { tail -n 30 "$WORK/undisturbed.log" >&2; exit 1; }
echo "done after $((SECONDS - BEGAN)) s; the same with a worker killed twice …"
BEGAN=$SECONDS
submit disturbed "$@" &
JOB=$!
kill_worker_in plant || { tail -n 30 "$WORK/disturbed.log" >&2; exit 1; }
kill_worker_in finetune || { tail -n 30 "$WORK/disturbed.log" >&2; exit 1; }
wait "$JOB" || { tail -n 30 "$WORK/disturbed.log" >&2; exit 1; }
echo "done after $((SECONDS - BEGAN)) s"
grep -ho "[a-z]*: resuming after step [0-9/]*" "$WORK/disturbed.log"
"$BIN/python" "$ROOT/tools/check/same_runs.py" "$WORK/runs/undisturbed" "$WORK/runs/disturbed"

#!/usr/bin/env bash
# The cluster path, tried on one machine: a Ray head on loopback with a token, the tiny LLaMA on two ZeRO-2 workers through
# `ray job submit`, once undisturbed and once with a worker killed in stage 2. Exit 0 only when the final losses agree.
#   tools/submit_demo.sh [FOLDER] [KEY=VALUE]...
# FOLDER (a new temporary one by default) keeps runs, logs and the token.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
BIN=${XMTC_BIN:-$ROOT/.venv/bin}
WORK=${1:-$(mktemp -d)}
shift || true
mkdir -p "$WORK"
PORT=${PORT:-26379} DASHBOARD=${DASHBOARD:-28265}
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$WORK/token RAY_USAGE_STATS_ENABLED=0
(umask 077 && "$BIN/python" -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH")
unset RAY_ADDRESS

# `--block` keeps everything that this head starts below one process, which is ended by its number.
"$BIN/ray" start --head --block --node-ip-address=127.0.0.1 --port="$PORT" --dashboard-host=127.0.0.1 \
    --dashboard-port="$DASHBOARD" --num-cpus=4 --temp-dir="$WORK/ray" > "$WORK/head.log" 2>&1 &
HEAD=$!
finish() { kill -TERM "$HEAD" 2>/dev/null || true; wait "$HEAD" 2>/dev/null || true; }
trap finish EXIT
UP=
for _ in $(seq 300); do
    (exec 3<> "/dev/tcp/127.0.0.1/$DASHBOARD") 2>/dev/null && { UP=1; break; }
    kill -0 "$HEAD" 2>/dev/null || { cat "$WORK/head.log" >&2; exit 1; }
    sleep 1
done
[[ -n $UP ]] || { echo "the head did not open port $DASHBOARD in 300 s; its log: $WORK/head.log" >&2; exit 1; }

submit() {   # submit NAME [KEY=VALUE]...
    local name=$1
    shift
    # The entry point runs where Ray likes: every path is absolute.
    "$BIN/ray" job submit --address "http://127.0.0.1:$DASHBOARD" --submission-id "$name-$$" -- \
        "$BIN/python" "$ROOT/launch/train.py" "$ROOT/configs/smoke_llama.yaml" "name=$name" \
        "track.directory=$WORK/runs" "data.corpus=$WORK/corpus" "$@" > "$WORK/$name.log" 2>&1
}
steps() { grep -c '"stage": *"finetune"' "$WORK/runs/$1/metrics.jsonl" 2>/dev/null || true; }

echo "undisturbed run …"
submit undisturbed "$@" || { tail -n 30 "$WORK/undisturbed.log" >&2; exit 1; }

echo "the same with a worker killed …"
submit disturbed "$@" &
JOB=$!
VICTIM=
while kill -0 "$JOB" 2>/dev/null; do
    if [[ -z $VICTIM && $(steps disturbed) -ge 6 ]]; then
        VICTIM=$("$BIN/python" "$ROOT/tools/find_worker.py" "$HEAD")
        if [[ -n $VICTIM ]]; then
            kill -KILL "$VICTIM"
            echo "killed worker $VICTIM after $(steps disturbed) lines of stage 2"
        fi
    fi
    sleep 0.2
done
wait "$JOB" || { tail -n 30 "$WORK/disturbed.log" >&2; exit 1; }
[[ -n $VICTIM ]] || { echo "the run ended before a worker could be killed" >&2; exit 1; }
"$BIN/python" "$ROOT/tools/same_losses.py" "$WORK/runs/undisturbed" "$WORK/runs/disturbed"

#!/bin/bash
# Record the sessions that ship, on this machine with two, four or more NVIDIA GPUs: tools/record.sh OUT
#
# A healthy lab of two nodes, one with four planted faults, and a job that hangs. PYTHON: the interpreter with fabtui.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

# The name of this machine belongs in no recording.
if [ -z "${FABTUI_RECORD:-}" ] && unshare --uts true 2> /dev/null; then
    FABTUI_RECORD=1 exec unshare --uts bash -c 'hostname n000 && exec "$@"' - bash "$0" "$out"
fi

fabtui() { "$PYTHON" -m fabtui "$@"; }

# Repeats a command up to three times, until its exit code is the expected one: other processes may disturb a session.
# Usage: recorded CODE FILE COMMAND ...; the command gets the file as its last argument.
recorded() {
    local code file=$2 want=$1 attempt
    shift 2
    for attempt in 1 2 3; do
        rm -f "$file"
        code=0
        "$@" "$file" > "${file%.jsonl.gz}.txt" 2>&1 || code=$?
        echo "$(basename "$file"): attempt $attempt, exit code $code (expected $want), $(wc -c < "$file") bytes"
        [ "$code" = "$want" ] && return
    done
    tail -20 "${file%.jsonl.gz}.txt"
}

names=$(nvidia-smi --query-gpu=name --format=csv,noheader)
gpus=$(wc -l <<< "$names")
gpu=$(head -1 <<< "$names" | sed 's/^NVIDIA //; s/[ -].*//' | tr '[:upper:]' '[:lower:]')
each=$((gpus / 2))
lab=2x$each
# Each endpoint sends in one of them and receives in one, so that all are found as paths.
faults=('n000:0>n000:1=slow:2GB' 'n000:1>n001:1=drop' 'n001:1>n001:0=corrupt' 'n001:0>n000:0=refuse')
[ "$each" -lt 4 ] || faults=('n000:0>n000:3=slow:2GB' 'n000:1>n001:2=drop' 'n001:3>n001:1=corrupt'
    'n001:0>n000:0=refuse')
plant=()
for fault in "${faults[@]}"; do plant+=(--lab-fault "$fault"); done

recorded 0 "$out/${gpu}x$gpus-lab-$lab.jsonl.gz" fabtui run --lab $lab --record
recorded 1 "$out/${gpu}x$gpus-lab-$lab-faults.jsonl.gz" fabtui run --lab $lab --timeout 5 "${plant[@]}" --record

# A training on all GPUs; its rank 1 is stopped 15 s after the observation has begun.
torch=
for one in "$PYTHON" /opt/*/bin/python3 /opt/*/.venv/bin/python3 /usr/bin/python3; do
    "$one" -c 'import torch' 2> /dev/null && torch=$one && break
done
[ -n "$torch" ] || { echo "no Python with PyTorch: no recording of a job"; exit 1; }
folder=$(mktemp -d)
ranks=()
trap 'kill -KILL "${ranks[@]}" 2> /dev/null || true; rm -rf "$folder"' EXIT
training() {
    echo even > "$folder/control"
    ranks=()
    for ((rank = 0; rank < gpus; rank++)); do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$gpus MASTER_ADDR=127.0.0.1 MASTER_PORT=29541 \
            "$torch" tests/device/training_rank.py "$folder/control" nccl > "$folder/rank$rank" 2>&1 &
        ranks+=($!)
    done
    for ((waited = 0; waited < 120; waited++)); do
        grep -q 'iteration 100 ' "$folder/rank0" && break
        sleep 1
    done
    tail -1 "$folder/rank0"
}
hang() {
    local code=0
    training
    (sleep 15 && kill -STOP "${ranks[1]}") &
    timeout 120 "$PYTHON" -m fabtui hang --transport local --wait --save "$1" || code=$?
    kill -KILL "${ranks[@]}"
    wait "${ranks[@]}" 2> /dev/null || true
    return "$code"
}
recorded 1 "$out/job-${gpu}x$gpus-stopped.jsonl.gz" hang
ls -l "$out"

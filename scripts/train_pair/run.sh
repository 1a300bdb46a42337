#!/bin/sh
# Train, export and measure the embedded pair: run.sh CORPUS_DIR OUT_DIR
# A stage whose result is already in OUT_DIR/work is skipped, so an interrupted run can be started again.
set -eu
[ $# -eq 2 ] || { echo "usage: run.sh CORPUS_DIR OUT_DIR" >&2; exit 2; }
corpus=$(realpath "$1"); mkdir -p "$2/work"; out=$(realpath "$2"); work=$out/work
here=$(dirname "$(realpath "$0")"); prompts=$here/../../experiments/prompts
py=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1

stage() {  # stage RESULT SCRIPT ARGS...
    result=$work/$1; script=$2; shift 2
    [ -e "$result" ] || "$py" "$here/$script" "$@"
}

stage tokenizer.json tokenizer.py "$corpus" "$work/tokenizer.json"
stage teacher-a.pt train.py "$corpus" "$work" --name teacher-a --shape target --dropout 0.15 --steps 5000
stage teacher-wide.pt train.py "$corpus" "$work" --name teacher-wide --shape wide --dropout 0.25 --steps 3600
stage target.pt distil.py "$corpus" "$work" --name target --shape target --teachers teacher-a teacher-wide \
    --text 0.3 --dropout 0.05 --steps 5000
stage target-samples.npz sample.py "$corpus" "$work" --model target --out target-samples.npz \
    --warm-rounds 40 --cold-rounds 24
stage draft.pt distil.py "$corpus" "$work" --name draft --shape draft --teachers target \
    --samples target-samples.npz --mix 24 24 16 --lr 4e-3 --decay 0.05 --steps 8000
"$py" "$here/export.py" "$work" "$out/models" target=target draft=draft
"$py" "$here/measure.py" "$corpus" "$out/models" "$prompts" "$out/models/measured.json"
"$py" "$here/golden.py" "$out/models" "$prompts" "$out/golden.json"

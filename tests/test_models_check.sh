#!/usr/bin/env bash
# A real model under `lockstep check`, drafted by prompt look-up and by its own first layers: differing bits 0.
# Skipped (exit 77) where the file is not there or is not read yet.
# usage: test_models_check.sh LOCKSTEP SOURCE_DIR FILE LAYERS
set -u
lockstep=$1 prompts=$2/experiments/prompts model=$2/models/$3 layers=$4
[ -f "$model" ] || { echo "skipped: no $model: scripts/fetch_models.sh gets it"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$lockstep" inspect "$model" >"$tmp/inspect" 2>&1 || {
    cat "$tmp/inspect"
    grep -q "is not a supported family" "$tmp/inspect" && exit 77
    exit 1
}
grep -q "not built" "$tmp/inspect" && { echo "skipped: its tokenizer is not built"; exit 77; }
for drafter in ngram "layers:$layers"; do
    "$lockstep" check --target "$model" --drafter "$drafter" --prompts "$prompts/mt-bench.jsonl" \
        --prompts "$prompts/humaneval.jsonl" --n-prompts 2 --max-new 16 --policy fixed:4 --seed 1 --context 1024 \
        --quiet >"$tmp/out" 2>&1 || { cat "$tmp/out"; exit 1; }
    echo "$drafter"
    cat "$tmp/out"
    grep -q "^every bit equal" "$tmp/out" || exit 1
done

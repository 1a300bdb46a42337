#!/usr/bin/env bash
# Measures decode, verification, attention, rounds and prompts on a GPU, on models with random weights
# of the sizes people use, and prints one screen. Tables and JSON records go to a folder.
#
#   LOCKSTEP=build/gpu/lockstep scripts/gpu_bench.sh OUT_DIR
#
# LOCKSTEP  the program                                          (default build/gpu/lockstep)
# DEVICE    cuda, cuda:N; cpu only to try this script            (default cuda)
# SHAPES    large, middle and small model                        (default llama-3-8b llama-3.2-1b
#           smollm2-135m); the large one needs 20 GB of memory for files
# LENGTH    tokens in the cache of decode, verify and price      (default 512)
# LENGTHS   of attention (default 505 to 32761); PROMPT: tokens of the prompt (default 1024)
# STORE     where the models are written                         (default /dev/shm, or /tmp when that
#           is smaller than the models)
# A step that fails or takes longer than LIMIT seconds (default 120) is named at the end, and the
# exit status is 1.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2

[ $# -eq 1 ] || { echo "usage: scripts/gpu_bench.sh OUT_DIR" >&2; exit 2; }
out=$1
lockstep=${LOCKSTEP:-$root/build/gpu/lockstep}
device=${DEVICE:-cuda}
length=${LENGTH:-512} prompt=${PROMPT:-1024}
# eight rows end at a power of two: past one, doubling changes the chunk length
lengths=${LENGTHS:-505,1017,2041,4089,8185,16377,32761}
read -r large middle small <<<"${SHAPES:-llama-3-8b llama-3.2-1b smollm2-135m}"
[ -x "$lockstep" ] || { echo "gpu_bench: no program $lockstep: set LOCKSTEP" >&2; exit 2; }
mkdir -p "$out" || exit 2

if [ -z "${STORE:-}" ]; then
    STORE=/dev/shm
    [ "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')" -gt 24000000 ] 2>/dev/null || STORE=/tmp
fi
store=$(mktemp -d "$STORE/lockstep-bench-XXXXXX") || exit 2
trap 'rm -rf "$store"' EXIT

profile=mma against=cublas
[ "$device" = cpu ] && profile=ieee against=ieee # the one profile it has
common=(--device "$device" --kv bf16 --quiet)
failed=()
started=$SECONDS

# step SUBJECT[_MODEL] ARGS...: one bench, its table in OUT/NAME.txt and its record in OUT/NAME.json
step() {
    local name=$1 begun=$SECONDS
    shift
    if timeout "${LIMIT:-120}" "$lockstep" bench "${name%%_*}" "$@" "${common[@]}" --record "$out/$name.json" \
        >"$out/$name.txt" 2>"$out/$name.err"; then
        rm -f "$out/$name.err"
    else
        failed+=("$name: $(tail -n 1 "$out/$name.err")")
    fi
    echo "$name $((SECONDS - begun)) s" >>"$out/times.txt"
}
make() { # NAME ARGS...
    local name=$1
    shift
    "$lockstep" synth --quiet "$@" "$store/$name" || failed+=("synth $name")
}
row() { awk "$1" "$out/$2.txt" 2>/dev/null; }

: >"$out/times.txt"
make large --shape "$large" --draft-layers "${DRAFT_LAYERS:-2}" --divergence 0.05
make middle --shape "$middle" --draft-layers "${DRAFT_LAYERS:-2}" --divergence 0.05
make small --shape "$small"
echo "synth $((SECONDS - started)) s" >>"$out/times.txt"
big=(--target "$store/large/target") mid=(--target "$store/middle/target") few=(--target "$store/small")
mid_pair=("${mid[@]}" --draft "$store/middle/draft")
big_pair=("${big[@]}" --draft "$store/large/draft")
p=(--profile "$profile")

step verify "${big[@]}" "${p[@]}" --rows 64 --length "$length"
step decode_middle "${mid[@]}" "${p[@]}" --length "$length"
step decode_small "${few[@]}" "${p[@]}" --length "$length"
step price "${big[@]}" "${p[@]}" --against "$against" --length "$length" --rows 16 --prompts 8 --tokens 64
step price_middle "${mid[@]}" "${p[@]}" --against "$against" --length 128 --rows 8 --prompts 16 --tokens 128
step attention --shape "$large" "${p[@]}" --rows 8 --length "$lengths" --chunk doubling:128:32 \
    --chunk doubling:64:32 --chunk even:32:64
step round "${big_pair[@]}" "${p[@]}" --drafts 2,4,8 --prompts 4 --tokens 96
step round_middle "${mid_pair[@]}" "${p[@]}" --drafts 2,4,8 --prompts 8 --tokens 96
step prompt "${big[@]}" "${p[@]}" --against "$against" --tokens "$prompt" --rows-a-pass 64,256,1024 --repeats 5

# ---- one screen ----------------------------------------------------------------------------------

{
    echo "random weights: large $large, middle $middle, small $small;$(row 'NR == 1 {sub(/^[^;]*;/, ""); print}' verify)"
    echo "1 decode step, length $length"
    for name in verify decode_middle decode_small; do
        row '/a token takes/ {sub(/^length [0-9]+: /, ""); printf "  %-13s %s\n", "'$name'", $0}
             /plain read of|us a layer/ {printf "  %-13s %s\n", "", $0}' $name
    done
    echo "2 a pass of M rows over one row, large (device in brackets)"
    row '$1 ~ /^(8|16|32|64)$/ && NF >= 8 {printf "  %d: %s (%s)", $1, $(NF - 3), $NF} END {print ""}' verify
    echo "3 $profile over $against by rows, large; flipped tokens"
    row '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9.]+$/ {printf "  %d: %s", $1, $NF} END {print ""}' price
    for name in price price_middle; do row '/flipped/ {print "  '$name' " $0}' $name; done
    echo "4 attention of a layer, large: us (share of a plain read)"
    row '$2 ~ /^('"${lengths//,/|}"')$/ {split($0, f); key = f[1] " " f[2]; us[key, f[3]] = f[4]; share[key, f[3]] = f[9]
         if (f[3] == 1) order[++n] = key}
         END {for (i = 1; i <= n; i++) printf "  %s: one row %s (%s), 8 rows %s, ratio %.2f\n", order[i],
              us[order[i], 1], share[order[i], 1], us[order[i], 8], us[order[i], 8] / us[order[i], 1]}' attention
    echo "5 rounds, greedy: large, then middle"
    row 'NR > 2' round
    row 'NR > 3' round_middle
    echo "6 a prompt of $prompt tokens, large"
    row 'NR > 2' prompt
    echo "took $((SECONDS - started)) s; tables and records in $out"
    for f in "${failed[@]}"; do echo "FAILED $f"; done
} 2>&1 | tee "$out/screen.txt"
[ ${#failed[@]} -eq 0 ]

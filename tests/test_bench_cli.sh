#!/usr/bin/env bash
# The benches and the synthetic pairs as a person meets them, and scripts/gpu_bench.sh on a small pair.
# usage: test_bench_cli.sh LOCKSTEP SOURCE_DIR
set -u
lockstep=$1
source_dir=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n_ok=0
n_bad=0

ok() { n_ok=$((n_ok + 1)); }
bad() {
    n_bad=$((n_bad + 1))
    echo "FAILED: $*"
    head -n 5 "$tmp/out" "$tmp/err" 2>/dev/null
}
run() { # STATUS ARGS...
    local want=$1 got
    shift
    "$lockstep" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    if [ $got -eq "$want" ]; then ok; else bad "exit $got, not $want: lockstep $*"; fi
}
refuse() { # WORDS ARGS...: exit 2, one line on stderr
    local words=$1
    shift
    run 2 "$@"
    if [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -e "$words" "$tmp/err"; then ok; else
        bad "not one line with '$words': lockstep $*"
    fi
}
says() { if grep -qE -e "$1" "$tmp/out"; then ok; else bad "stdout lacks '$1'"; fi; }

pair=("$tmp/pair/target" "$tmp/pair/draft")
run 0 synth --quiet --draft-layers 1 --divergence 0.1 "$tmp/pair"
run 0 inspect "${pair[@]}"
run 0 generate --target "${pair[0]}" --draft "${pair[1]}" --prompt hello --max-new 32 --compare
grep -q 'the same tokens' "$tmp/err" && ok || bad "the pair's text"
refuse 'so 1 to 1' synth --quiet --draft-layers 2 "$tmp/none"
[ ! -e "$tmp/none" ] && ok || bad "a refused pair left a folder"

bench=(--quiet --repeats 3 --threads 1)
run 0 bench verify --target "${pair[0]}" "${bench[@]}" --length 32 --rows 64 --record "$tmp/verify.json"
says '^   64 '
says '^8 rows: [0-9.]+ GFMA/s, in registers alone [0-9.]+: share [0-9.]+; .* 8 rows over one [0-9.]+$'
grep -q '^   16 .*' "$tmp/out" && ! grep -q '^   15 ' "$tmp/out" && ok || bad "powers of two past 16"
grep -q '"command": "bench verify"' "$tmp/verify.json" && grep -q '"share_device": ' "$tmp/verify.json" &&
    ok || bad "the record"
run 0 bench decode --target "${pair[0]}" "${bench[@]}" --length 32
says '^-?[0-9.]+ us a layer \(2 of them\)'
run 0 bench attention --shape tiny "${bench[@]}" --length 16,64 --rows 4 --chunk splits:1 --chunk even:32:64
says '^splits:1 +64 +4 '
says '^even:32:64 +16 +1 '
run 0 bench attention --target "${pair[0]}" "${bench[@]}" --length 16 --json --block-rows 16
says '"block_rows": 16'
run 0 bench round --target "${pair[0]}" --draft "${pair[1]}" "${bench[@]}" --length 16 --drafts 1,3 \
    --prompts 2 --tokens 24
says '^plain decode: '
says '^  3 '
run 0 bench round --shape tiny --tmp "$tmp" "${bench[@]}" --length 16 --prompts 2 --tokens 24 --json
says '"to_promised": [0-9.]+'
run 0 bench prompt --target "${pair[0]}" "${bench[@]}" --tokens 96 --rows-a-pass 16,96 --against ieee
[ "$(grep -c '^ieee ' "$tmp/out")" -eq 4 ] && ok || bad "two engines, two widths"
run 0 bench price --target "${pair[0]}" "${bench[@]}" --against ieee --length 16 --rows 2 --prompts 2 --tokens 20
[ "$(grep -c '^ieee .* 0 of 40 greedy tokens flipped' "$tmp/out")" -eq 2 ] && ok || bad "an exact engine flips"
run 0 bench load --target "${pair[0]}" "${bench[@]}"
says '^the first load: [0-9.]+ ms; memory then at most [0-9.]+ MB'
says '^open +[0-9.]+ .* -  +[0-9.]+$'
says '^read +[0-9.]+ .* [0-9.]+ +1\.000$'
says '^engine +[0-9.]+ .* -  +[0-9.]+$'
run 0 bench load "${bench[@]}" --json
for words in '"part": "engine"' '"weight_bytes": [1-9]' '"peak_bytes": [1-9]' '"first_us": ' '"gb_per_s": '; do
    says "$words"
done
ls -A "$tmp" | grep -q lockstep-bench && bad "bench left a folder behind" || ok

refuse 'profile ieee only' bench price --target "${pair[0]}"
refuse 'profile ieee only' bench decode --target "${pair[0]}" --profile mma
refuse 'cpu, cuda or cuda:N' bench decode --device gpu
refuse 'name a draft model' bench round --target "${pair[0]}"
refuse 'several rules' bench decode --target "${pair[0]}" --chunk splits:1 --chunk splits:2
refuse '--length' bench decode --target "${pair[0]}" --length 16,x
refuse '--rows-a-pass' bench prompt --target "${pair[0]}" --rows-a-pass 5000
refuse 'lockstep synth' bench load --shape tiny
refuse 'not a folder' bench load --target "$tmp/nothing" --quiet
refuse 'too few' bench round --target "${pair[0]}" --draft "${pair[1]}" --quiet --length 16 --tokens 4

# the screen of the GPU measurement
LOCKSTEP=$lockstep DEVICE=cpu SHAPES="tiny tiny tiny" STORE=$tmp LENGTH=32 LENGTHS=32,64 PROMPT=96 DRAFT_LAYERS=1 \
    "$source_dir/scripts/gpu_bench.sh" "$tmp/gpu" >"$tmp/out" 2>"$tmp/err" && ok || bad "gpu_bench.sh"
for words in 'a token takes' '^  8: [0-9.]+ \(' 'flipped' 'even:32:64 64: one row' '^  4 +[01]\.' '^ieee +64 '; do
    says "$words"
done
[ -s "$tmp/gpu/round.json" ] && [ -s "$tmp/gpu/screen.txt" ] && ok || bad "raw output"
ls -A "$tmp" | grep -q lockstep-bench && bad "gpu_bench left models behind" || ok

echo "$n_ok passed, $n_bad failed"
[ $n_bad -eq 0 ]

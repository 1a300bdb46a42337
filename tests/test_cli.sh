#!/usr/bin/env bash
# The program as a person meets it: exit statuses, one-line errors, what is printed where.
# usage: test_cli.sh LOCKSTEP SOURCE_DIR
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
# run STATUS ARGS...: runs the program, output in $tmp/out and $tmp/err, and holds it to its status
run() {
    local want=$1 got
    shift
    "$lockstep" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    if [ $got -eq "$want" ]; then ok; else bad "exit $got, not $want: lockstep $*"; fi
}
# A usage or input error: exit 2, nothing on stdout, one line on stderr that holds the words.
refuse() {
    local words=$1
    shift
    run 2 "$@"
    if [ "$(wc -l <"$tmp/err")" -eq 1 ] && [ ! -s "$tmp/out" ] && grep -qF -e "$words" "$tmp/err"; then
        ok
    else
        bad "not one line with '$words': lockstep $*"
    fi
}
says() { if grep -qE -e "$1" "$tmp/out"; then ok; else bad "stdout lacks '$1'"; fi; }
notes() { if grep -qE -e "$1" "$tmp/err"; then ok; else bad "stderr lacks '$1'"; fi; }
field() { sed -E "s/.*\"$1\": (\"[^\"]*\"|\[[^]]*\]|[^,}]*).*/\1/" "$tmp/out"; }

# ---- help and usage ------------------------------------------------------------------------------

run 0 --version
says '^lockstep [0-9]+\.[0-9]+\.[0-9]+$'
run 0 help
says '^  generate '
for c in generate run check inspect bench synth; do
    run 0 $c --help
    says "^usage: lockstep $c "
    says '^Examples$'
    cp "$tmp/out" "$tmp/first"
    run 0 help $c
    cmp -s "$tmp/first" "$tmp/out" && ok || bad "help $c is not $c --help"
done
refuse 'try lockstep help'
refuse 'no command frobnicate' frobnicate
refuse 'no command a\x1B[31mb' $'a\e[31mb'
refuse '--frobnicate is not an option: try lockstep generate --help' generate --frobnicate
refuse -- '--tem' check --te
refuse '-z is not an option' generate -z
refuse '--max-new needs a value' generate --max-new
refuse '--quiet=3 takes no value' generate --quiet=3
refuse 'not a whole number from 0' generate --max-new many --prompt x
refuse 'not a whole number from 1' generate --threads 0 --prompt x
refuse 'not a number' generate --temperature -1 --prompt x
refuse 'not a number' generate --temperature nan --prompt x
refuse 'not one of auto|plain|avx2|avx512' generate --simd fast --prompt x
refuse 'not even:MIN:MAX' generate --chunk odd:1:2 --prompt x
refuse 'chunk' generate --chunk even:0:64 --prompt x
refuse 'seed' generate --seed -1 --prompt x
refuse 'behind --prompt' generate hello
refuse 'give one model folder' inspect
refuse 'name a script' run
refuse 'say what to measure' bench
refuse 'name one new folder' synth

# ---- a pair of its own: random weights, one token a byte ------------------------------------------

run 0 synth --quiet --seed 1 "$tmp/target"
run 0 synth --quiet --seed 2 "$tmp/draft"
run 0 synth --quiet --seed 1 "$tmp/again"
cmp -s "$tmp/target/model.safetensors" "$tmp/again/model.safetensors" && ok || bad "synth repeats"
cmp -s "$tmp/target/model.safetensors" "$tmp/draft/model.safetensors" && bad "synth seeds" || ok
refuse 'exists' synth "$tmp/target"
refuse "$tmp/none" synth "$tmp/none/deeper"
run 0 inspect "$tmp/target" "$tmp/draft"
[ -s "$tmp/out" ] && ok || bad "inspect says nothing"
refuse "$tmp/none" inspect "$tmp/none"
pair=(--target "$tmp/target" --draft "$tmp/draft")

# ---- generate ------------------------------------------------------------------------------------

refuse 'give --prompt TEXT' generate "${pair[@]}"
refuse 'not both' generate "${pair[@]}" --prompt a --prompt-file b
refuse 'the prompt is empty' generate "${pair[@]}" --prompt ''
refuse 'the prompt is empty' generate "${pair[@]}" --prompt-file -
refuse '--system goes with --chat' generate --target /nowhere --prompt a --system b
refuse "$tmp/none" generate "${pair[@]}" --prompt-file "$tmp/none"
refuse '--system goes with --chat' generate "${pair[@]}" --prompt a --system b
refuse 'no chat template' generate "${pair[@]}" --prompt a --chat
echo "{{ '<|user|>' + content }}" >"$tmp/target/chat_template.jinja"
refuse 'not one that --chat knows' generate "${pair[@]}" --prompt a --chat
echo "{{ '[INST] ' + content + ' [/INST]' }}" >"$tmp/target/chat_template.jinja"
refuse 'no place for a system text' generate "${pair[@]}" --prompt a --chat --system b
run 0 generate "${pair[@]}" --prompt '[INST] hello [/INST]' --max-new 8 --seed 3 --json
digest=$(field digest)
run 0 generate "${pair[@]}" --prompt hello --chat --max-new 8 --seed 3 --json
[ "$(field digest)" = "$digest" ] && ok || bad "--chat is not the template's text"
rm "$tmp/target/chat_template.jinja"
refuse '--target without --draft' generate --target "$tmp/target" --prompt a
refuse "$tmp/none" generate --target "$tmp/none" --prompt a
refuse 'nosuch' generate "${pair[@]}" --policy nosuch --prompt a
refuse 'fixed:N' generate "${pair[@]}" --policy fixed:65 --prompt a
refuse 'NAME=VALUE' generate "${pair[@]}" --policy svip --option threshold --prompt a
refuse 'take fewer' generate --target "$tmp/target" --drafter layers:99 --prompt a
refuse 'layers:N' generate --target "$tmp/target" --drafter layers:0 --prompt a
refuse 'layers:N' generate --target "$tmp/target" --drafter layers --prompt a
refuse 'top_p' generate "${pair[@]}" --top-p 0 --prompt a

text=()
for how in 'fixed:0' 'fixed:1' 'fixed:4' 'fixed:15' 'svip' 'heuristic'; do
    run 0 generate "${pair[@]}" --prompt hello --max-new 48 --policy "$how" --seed 3 --temperature 1 --json
    text+=("$(field tokens)")
done
for drafter in ngram layers:1 garbage none; do
    run 0 generate --target "$tmp/target" --drafter $drafter --prompt hello --max-new 48 --seed 3 --temperature 1 --json
    text+=("$(field tokens)")
done
run 0 generate "${pair[@]}" --prompt hello --max-new 48 --seed 3 --temperature 1 --json --threads 1 --simd plain --block-rows 16
text+=("$(field tokens)")
for t in "${text[@]}"; do
    [ "$t" = "${text[0]}" ] && [ ${#t} -gt 100 ] && ok || bad "another text: $t"
done
run 0 generate "${pair[@]}" --prompt hello --max-new 48 --seed 4 --temperature 1 --json
[ "$(field tokens)" != "${text[0]}" ] && ok || bad "another seed, the same text"
# rounds without a single draft: acceptance is absent
run 0 generate --target "$tmp/target" --drafter none --prompt hello --max-new 8 --json
[ "$(field acceptance)" = null ] && ok || bad "acceptance of nothing"
# unseeded runs differ, and each can be repeated from the seed in its record
run 0 generate "${pair[@]}" --prompt hello --max-new 48 --temperature 1 --json
first=$(field tokens) seed=$(field seed)
run 0 generate "${pair[@]}" --prompt hello --max-new 48 --temperature 1 --json --seed "$seed"
[ "$(field tokens)" = "$first" ] && ok || bad "the recorded seed gives another text"

run 0 generate "${pair[@]}" --prompt hello --max-new 20 --seed 3 --temperature 1 --compare
notes '^20 tokens in [0-9]+ passes'
notes 'the same tokens$'
cp "$tmp/out" "$tmp/first"
printf hello | "$lockstep" generate "${pair[@]}" --prompt-file - --max-new 20 --seed 3 --temperature 1 \
    --quiet >"$tmp/out" 2>"$tmp/err" && ok || bad "prompt from standard input"
cmp -s "$tmp/first" "$tmp/out" && [ ! -s "$tmp/err" ] && ok || bad "standard input is another prompt"
run 0 generate "${pair[@]}" --prompt hello --max-new 20 --seed 3 --temperature 1 --color always
grep -q $'\e\[' "$tmp/out" && ok || bad "no colours"
run 0 generate "${pair[@]}" --prompt hello --max-new 20 --seed 3 --temperature 1 --show-drafts
grep -qF '[-' "$tmp/out" && ok || bad "no refused drafts shown"
run 0 generate "${pair[@]}" --prompt hello --max-new 0 --context 32 --seed 3 --json
[ "$(field end)" = '"length"' ] && ok || bad "an open end ends at the context"

# the policy that README.md shows
awk '/^    return \{/ {on = 1} on {print substr($0, 5)} /^    \}/ {on = 0}' "$source_dir/README.md" >"$tmp/mine.lua"
run 0 generate "${pair[@]}" --prompt hello --max-new 48 --seed 3 --temperature 1 --json \
    --policy "$tmp/mine.lua" --option most=8
[ "$(field tokens)" = "${text[0]}" ] && ok || bad "README's policy gives another text"

# ---- check ---------------------------------------------------------------------------------------

cat >"$tmp/prompts.jsonl" <<'JSONL'
{"id": "a", "prompt": "It was the best of times"}
{"id": "b", "task": "t", "source": "s", "prompt": "x"}
JSONL
check=(check "${pair[@]}" --prompts "$tmp/prompts.jsonl" --max-new 40 --seed 5 --quiet)
run 0 "${check[@]}"
says 'every bit equal'
run 0 "${check[@]}" --drafter garbage --block-rows 8 --kv bf16 --policy fixed:15 --certificate "$tmp/c.json"
grep -q '"same": true' "$tmp/c.json" && grep -qE '"logits": "[0-9a-f]{64}"' "$tmp/c.json" && ok ||
    bad "certificate"
run 0 "${check[@]}" --policy fixed:3 --temperature 0 --certificate -
grep -q '^{' "$tmp/out" && grep -q 'every bit equal' "$tmp/err" && ok || bad "certificate to stdout"
run 1 "${check[@]}" --policy fixed:3 --temperature 0 --plain-chunk splits:3 --certificate "$tmp/c.json"
says '^fork in prompt a, policy fixed'
notes 'differ from plain decode'
grep -q '"same": false' "$tmp/c.json" && ok || bad "certificate of a fork"
refuse 'does not promise' check "${pair[@]}" --rule rejection
refuse "$tmp/none" check "${pair[@]}" --prompts "$tmp/none"
refuse "$tmp/none/c" check "${pair[@]}" --certificate "$tmp/none/c"
run 2 "${check[@]}" --max-new 1 --context 1 # nothing to compare is not a success
notes 'no token was compared'
echo '{"id": "a"}' >"$tmp/bad.jsonl"
refuse 'bad.jsonl' check "${pair[@]}" --prompts "$tmp/bad.jsonl"

# ---- bench ---------------------------------------------------------------------------------------

mkdir "$tmp/t"
run 0 bench verify --shape tiny --tmp "$tmp/t" --repeats 3 --length 32 --quiet
says '^   16 '
says 'plain read'
[ -z "$(ls -A "$tmp/t")" ] && ok || bad "bench left a folder behind"
run 0 bench decode --target "$tmp/target" --repeats 3 --length 16 --length 64 --quiet --json
says '"weight_gb_per_s": [0-9.]+'
run 0 bench policy --calls 200 --policy svip
says '^svip '
refuse 'give one of them' bench verify --shape tiny --target "$tmp/target"
refuse 'longer than the model' bench verify --target "$tmp/target" --length 600
refuse '--tmp' bench verify --shape tiny --tmp "$tmp/none"

# ---- run -----------------------------------------------------------------------------------------

refuse "$tmp/none.lua" run "$tmp/none.lua"
echo 'local x = = 1' >"$tmp/syntax.lua"
refuse 'syntax.lua:1' run "$tmp/syntax.lua"
echo 'error("told so")' >"$tmp/error.lua"
refuse 'told so' run "$tmp/error.lua"
echo 'print("hello from a script")' >"$tmp/hello.lua"
run 0 run "$tmp/hello.lua"
says '^hello from a script$'
echo 'require("lockstep").fail("not equal")' >"$tmp/fail.lua"
run 1 run "$tmp/fail.lua"
notes 'not equal'

# ---- Ctrl-C --------------------------------------------------------------------------------------

# a shell that runs jobs in the background makes them ignore SIGINT: SIGTERM takes the same path
"$lockstep" check "${pair[@]}" --prompts "$tmp/prompts.jsonl" --max-new 400 --policy fixed:1 \
    --temperature 0 --temperature 1 --simd plain --threads 1 >"$tmp/out" 2>"$tmp/err" </dev/null &
sleep 0.2
kill -TERM $!
wait $!
got=$?
[ $got -eq 130 ] || [ $got -eq 0 ] && ok || bad "stopped with $got"

# ---- from anywhere -------------------------------------------------------------------------------

cd / || exit 2
if [ -f "$source_dir/experiments/models/target/config.json" ]; then
    run 0 generate --prompt 'Once upon a time' --max-new 4 --quiet
else
    refuse 'the embedded pair' generate --prompt 'Once upon a time'
fi

echo "$n_ok passed, $n_bad failed"
[ $n_bad -eq 0 ]

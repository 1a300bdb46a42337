#!/usr/bin/env bash
# From a fresh clone to results: installs what is missing, builds, runs a short study of three draft
# length policies on the embedded pair, and checks that every token is plain decode's, bit for bit.
set -euo pipefail
start=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

say "packages"
scripts/deps.sh

say "build (build/cpu)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake --preset cpu && cmake --build --preset cpu --target lockstep; } >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    exit 2
}
lockstep=build/cpu/spec/lockstep
"$lockstep" --version

say "study: how often is a draft accepted, under three policies?"
"$lockstep" run experiments/acceptance_rate.lua policies=fixed,heuristic,svip prompts=12 max_new=96

say "check: is every token the one plain decoding gives?"
"$lockstep" check --n-prompts 6 --max-new 64 --seed 1

shown=$lockstep
[ "$start" = "$PWD" ] || shown=$PWD/$lockstep
say "what next"
cat <<TEXT
  $shown generate --prompt "Once upon a time" --show-drafts --compare
  $shown run experiments/acceptance_rate.lua --help
  $shown help
  policies/README.md       write a policy of your own: fifteen lines of Lua
TEXT

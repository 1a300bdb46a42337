#!/usr/bin/env bash
# Seeds each fault of tests/mutations/*.mut into a scratch copy of the tree, rebuilds, and shows which
# test caught it. A fault that nothing catches is a hole in the tests: exit status 1.
#
#   tests/mutations/run.sh [NAME...]     all of them, or those named (without .mut)
#
# A .mut file: "file:", "test:" (the tests that have to catch it, any of them), "why:", then the old
# text and the new text, each after a line of four dashes. The old text has to occur exactly once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=${TMPDIR:-/tmp}/lockstep-mutations
export GOMP_SPINCOUNT=1000

field() { sed -n "s/^$2: *//p" "$1" | head -n 1; }
part() { awk -v want="$2" '/^----$/ {n++; next} n == want' "$1"; }

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for f in "$here"/*.mut; do names+=("$(basename "$f" .mut)"); done
fi

mkdir -p "$scratch/tree"
(cd "$top" && git ls-files -z --cached --others --exclude-standard -- . ':!experiments/results' |
    rsync -a --delete --from0 --files-from=- ./ "$scratch/tree/" 2>/dev/null) ||
    (cd "$top" && tar cf - --exclude=./build --exclude=./.git . | (cd "$scratch/tree" && tar xf -))
cmake -S "$scratch/tree" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLS_BODY_OPT=-O1 \
    -DLS_POISON=ON -DLS_WERROR=OFF >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log"; exit 2; }

caught=0 missed=0
printf '%-28s %-9s %s\n' fault result 'caught by'
for name in "${names[@]}"; do
    mut=$here/$name.mut
    [ -f "$mut" ] || { echo "run.sh: no such fault: $name" >&2; exit 2; }
    file=$(field "$mut" file) tests=$(field "$mut" test)
    cp "$scratch/tree/$file" "$scratch/saved"
    OLD=$(part "$mut" 1) NEW=$(part "$mut" 2) perl -0pi -e '
        my ($old, $new) = @ENV{"OLD", "NEW"};
        my $n = () = /\Q$old\E/g;
        die "the old text occurs $n times in $ARGV\n" unless $n == 1;
        s/\Q$old\E/$new/' "$scratch/tree/$file" || { cp "$scratch/saved" "$scratch/tree/$file"; exit 2; }
    by=
    # shellcheck disable=SC2086
    if ! ninja -C "$scratch/build" $tests >"$scratch/build.log" 2>&1; then
        tail -n 20 "$scratch/build.log"
        cp "$scratch/saved" "$scratch/tree/$file"
        echo "run.sh: $name does not build" >&2
        exit 2
    fi
    for t in $tests; do
        if ! (cd "$scratch/build" && timeout 600 ctest -R "^$t\$" >"$scratch/$name.$t.log" 2>&1); then by="$by $t"; fi
    done
    cp "$scratch/saved" "$scratch/tree/$file"
    touch "$scratch/tree/$file"
    if [ -n "$by" ]; then
        caught=$((caught + 1))
        printf '%-28s %-9s%s\n' "$name" caught "$by"
    else
        missed=$((missed + 1))
        printf '%-28s %-9s %s\n' "$name" MISSED "($tests)"
    fi
done
printf '\n%d caught, %d missed\n' "$caught" "$missed"
[ "$missed" -eq 0 ]

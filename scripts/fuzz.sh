#!/usr/bin/env bash
# The readers of foreign files under libFuzzer, with the address and undefined-behaviour sanitizers.
#
#   scripts/fuzz.sh [TARGET|all] [SECONDS]   safetensors, index, gguf, config, tokenizer; default all, 600
#   scripts/fuzz.sh merge [TARGET|all]       what was found that reaches code the kept inputs do not
#                                            reach, added to tests/fuzz/corpus/TARGET: at most KEEP (48)
#                                            files of 2 KiB, those that add most
#
# Needs clang and its runtime library of sanitizers (on Debian the package clang, in some releases also
# libclang-rt-VERSION-dev): no dependency of build or tests, which have a driver of their own. Inputs found are
# kept in build/fuzz/TARGET and are where the next run begins; an input that fails lies in
# build/fuzz/crash-TARGET-*. CC names another clang, RSS_MB another limit of memory (default 1024).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=build/fuzz cc=${CC:-clang} all=(safetensors index gguf config tokenizer)
sanitize=-fsanitize=address,undefined

die() { echo "fuzz: $*" >&2; exit 2; }
merge=""
if [ "${1:-}" = merge ]; then merge=1; shift; fi
targets=("${all[@]}")
[ "${1:-all}" = all ] || targets=("$1")
[ -f "tests/fuzz/fuzz_${targets[0]}.c" ] || die "no target ${targets[0]}: one of ${all[*]}, or all"
seconds=${2:-600}
command -v "$cc" >/dev/null || die "no $cc here: install clang (Debian: apt-get install clang), or set CC"
mkdir -p "$out/o"
echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n); int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n == 77; }' \
    >"$out/probe.c"
"$cc" -fsanitize=fuzzer,address "$out/probe.c" -o "$out/probe" 2>"$out/probe.log" ||
    die "$cc cannot link a fuzzer: its runtime is a package of its own (see $out/probe.log)"

# The readers and what they stand on, as an archive: a target takes what it needs of it.
libs=(jansson libpcre2-8 libutf8proc libcrypto)
flags=(-std=c11 -g -O1 -fno-omit-frame-pointer -ffp-contract=off -D_POSIX_C_SOURCE=200809L -DLS_VERSION='"fuzz"'
    -Ispec -Ikernels -DLS_TEST_DIR="\"$PWD/tests\"")
read -ra found <<<"$(pkg-config --cflags "${libs[@]}")"
flags+=("${found[@]}")
compile() { # sources, each to build/fuzz/o/NAME.o unless that is newer than every header and itself
    local newest f o
    newest=$(ls -t spec/*.h kernels/*.h tests/fuzz/*.h scripts/fuzz.sh | head -n 1)
    for f in "$@"; do
        o=$out/o/$(basename "$f" .c).o
        [ "$o" -nt "$f" ] && [ "$o" -nt "$newest" ] || printf '%s\0%s\0' "$f" "$o"
    done | xargs -0 -r -n 2 -P "$(nproc)" sh -c "\"$cc\" $(printf '%q ' "${flags[@]}") $sanitize \
        -fno-sanitize-recover=all -fsanitize=fuzzer-no-link -c \"\$0\" -o \"\$1\""
}
sources=(kernels/status.c)
for f in spec/*.c; do
    case $f in spec/lua_* | spec/cmd_* | spec/bench* | spec/lockstep.c) ;; *) sources+=("$f") ;; esac
done
compile "${sources[@]}" tests/fuzz/fuzz.c tests/fuzz/fuzz_text.c
rm -f "$out/libreaders.a"
ar rcs "$out/libreaders.a" $(for f in "${sources[@]}"; do echo "$out/o/$(basename "$f" .c).o"; done)

build() { # target
    compile "tests/fuzz/fuzz_$1.c"
    # shellcheck disable=SC2046
    "$cc" $sanitize -fsanitize=fuzzer "$out/o/fuzz_$1.o" "$out/o/fuzz.o" "$out/o/fuzz_text.o" "$out/libreaders.a" \
        -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free \
        $(pkg-config --libs "${libs[@]}") -lm -o "$out/fuzz_$1"
}
# What the tests begin with (tests/fuzz/CMakeLists.txt), in one folder.
seeds() { # target
    local line f
    line=$(tr '\n' ' ' <tests/fuzz/CMakeLists.txt | grep -o "ls_add_fuzz($1 [^)]*)") || die "no target $1"
    line=${line#*"$1"}
    mkdir -p "$out/$1" "$out/seeds/$1"
    for f in ${line%)}; do
        [ -e "tests/$f" ] && find "tests/$f" -type f -size -64k ! -name 'slow_*' -exec cp -n {} "$out/seeds/$1/" \;
    done
    return 0
}
for t in "${targets[@]}"; do
    build "$t"
    seeds "$t"
    kept=tests/fuzz/corpus/$t
    if [ -n "$merge" ]; then
        rm -rf "$out/merged" && mkdir -p "$out/merged" "$kept"
        "$out/fuzz_$t" -set_cover_merge=1 -max_len=2048 "$out/merged" "$out/seeds/$t" "$out/$t" \
            >"$out/merge-$t.log" 2>&1 || die "merge failed: $out/merge-$t.log"
        added=0
        for f in $(ls -tr "$out/merged"); # written in order of what they add
        do
            [ "$added" -lt "${KEEP:-48}" ] || break
            if find "$out/seeds/$t" -type f -size "$(stat -c %s "$out/merged/$f")c" -exec cmp -s {} "$out/merged/$f" \; \
                -print -quit | grep -q .; then continue; fi
            cp "$out/merged/$f" "$kept/${f:0:12}"
            added=$((added + 1))
        done
        echo "fuzz: $t: $(ls "$kept" | wc -l) kept, $(du -sb "$kept" | cut -f 1) bytes"
        continue
    fi
    echo "fuzz: $t for $seconds s"
    "$out/fuzz_$t" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb="${RSS_MB:-1024}" \
        -malloc_limit_mb=256 -use_value_profile=1 -print_final_stats=1 -artifact_prefix="$out/crash-$t-" \
        "$out/$t" "$out/seeds/$t" >"$out/$t.log" 2>&1 || { tail -n 40 "$out/$t.log"; die "$t failed: $out/$t.log"; }
    grep -E "stat::(number_of_executed_units|peak_rss_mb)" "$out/$t.log"
done

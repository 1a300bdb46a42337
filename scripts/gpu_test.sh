#!/usr/bin/env bash
# The tests of the CUDA backend, on a machine with a GPU; of profile mma also of the code that cards of
# compute capability 8 run.
#
#   scripts/gpu_test.sh build         where nvcc is, a GPU need not be: builds, and gathers in build/gpu
#                                     what the GPU machine needs beside this tree
#   scripts/gpu_test.sh run           where the GPU is: needs build/gpu, no compiler and no packages
#   scripts/gpu_test.sh               both, or whichever this machine can do
#     --quick                         neither sanitizers nor seeded faults (build: no seeded faults)
#     --sanitize TOOL                 run: memcheck, racecheck, initcheck or synccheck (or all) of
#                                     compute-sanitizer over the thin tests, and nothing else
#     --only PATTERN                  run: tests and tools whose name matches the extended regex
#     --jobs N                        run: programs at once (default 6; the sanitizers too)
#
# Environment: LS_CUDA_ARCHS, what to build for (default 90; see CMAKE_CUDA_ARCHITECTURES).
# Exit status 1 if anything failed, was skipped or ran out of its time. Logs are in build/gpu/log.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
out=build/gpu bin=$PWD/build/gpu/ls_gpu_tests older=$PWD/build/gpu/log/ls_gpu_tests_8.0
jobs=6 quick="" only=. verb="" tools="memcheck racecheck initcheck synccheck" sanitize=""

die() { echo "gpu_test: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    build | run) verb=$1 ;;
    --quick) quick=1 ;;
    --sanitize) shift; sanitize=${1:?--sanitize TOOL}; [ "$sanitize" = all ] || tools=$sanitize ;;
    --only) shift; only=${1:?--only PATTERN} ;;
    --jobs) shift; jobs=${1:?--jobs N} ;;
    *) die "unknown argument $1 (see the first lines of this script)" ;;
    esac
    shift
done

# ---- build ------------------------------------------------------------------------------------------

# Shared libraries of a program that are not the C library's, beside it.
gather_libraries() { # program...
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
        while read -r name path; do
            case $name in
            libc.so.* | libm.so.* | ld-linux* | libpthread.so.* | libdl.so.* | librt.so.* | libcuda.so.*) ;;
            *) cp -L "$path" "$out/$name" ;;
            esac
        done
}

# The same tests of what cards of compute capability 8 run (no bulk copies, clusters or early
# launches), as machine code of the newer card.
build_older() {
    local real=${LS_CUDA_ARCHS:-90}
    real=${real%%[!0-9]*}
    cmake --preset cuda -B build/cuda-8.0 -DCMAKE_CUDA_ARCHITECTURES=OFF \
        "-DCMAKE_CUDA_FLAGS=-gencode arch=compute_80,code=sm_$real" >build/gpu_configure.log 2>&1 ||
        { cat build/gpu_configure.log >&2; exit 2; }
    cmake --build build/cuda-8.0 --target ls_gpu_tests -j "$(nproc)" || exit 2
    strip -o "$out/ls_gpu_tests_8.0" build/cuda-8.0/tests/gpu/ls_gpu_tests
    xz -9 -f "$out/ls_gpu_tests_8.0"
}

build() {
    command -v nvcc >/dev/null || die "build: no nvcc here"
    scripts/deps.sh || exit 2
    mkdir -p build
    cmake --preset cuda "-DCMAKE_CUDA_ARCHITECTURES=${LS_CUDA_ARCHS:-90}" >build/gpu_configure.log 2>&1 ||
        { cat build/gpu_configure.log >&2; exit 2; }
    cmake --build --preset cuda --target ls_gpu_tests lockstep -j "$(nproc)" || exit 2
    rm -rf "$out"
    mkdir -p "$out"
    cp build/cuda/tests/gpu/ls_gpu_tests build/cuda/spec/lockstep "$out/"
    strip "$out/ls_gpu_tests" "$out/lockstep"
    gather_libraries "$out/ls_gpu_tests" "$out/lockstep"
    build_older
    if [ -z "$quick" ]; then
        tests/mutations/run.sh --gpu-build "$PWD/$out/mutants" || exit 2
    fi
    echo "gpu_test: built $out, $(du -sm "$out" | cut -f 1) MiB"
    [ "$(du -sm "$out" | cut -f 1)" -le 48 ] || die "build: more than 48 MiB to carry"
}

# ---- run --------------------------------------------------------------------------------------------

# A line a piece of work: name, device, seconds it may take, command. Long ones first.
work() {
    local t
    for t in test_rule_dist test_generate_equal test_pass_equal; do echo "$t cuda 240 $bin $t"; done
    for t in test_cuda_large_equal test_linear_large_equal test_generate_equal test_pass_equal; do
        echo "$t cuda-mma 240 $bin $t"
    done
    for t in test_attn_matrix_equal test_cuda_equal test_cuda_width_equal test_draw_dist \
        test_accept_dist test_model_near test_families_near test_families_equal \
        test_families_draft_equal test_kv_state test_attn_equal test_attn_order_equal \
        test_place_attn_equal test_window_equal test_linear_equal test_norm_linear_equal \
        test_norm_gates_equal test_attn_near test_linear_near test_tile_equal test_rows_near \
        test_stats_near test_stats_err test_accept_equal test_chain_state test_drafter_state \
        test_generate_state test_lua_generate_equal test_packed_equal test_cuda_err; do
        echo "$t cuda 150 $bin $t"
    done
    for t in test_attn_matrix_equal test_cuda_width_equal test_attn_equal test_attn_order_equal \
        test_place_attn_equal test_window_equal test_linear_equal test_norm_linear_equal \
        test_norm_gates_equal test_families_equal test_families_draft_equal test_linear_near \
        test_attn_near test_generate_state test_drafter_state test_packed_equal \
        test_cuda_small_equal test_cuda_err; do
        echo "$t cuda-mma 150 $bin $t"
    done
    for t in test_linear_equal test_norm_linear_equal test_norm_gates_equal test_place_attn_equal \
        test_attn_equal test_cuda_width_equal test_packed_equal; do
        echo "$t cuda-mma-small 150 $bin $t"
    done
    for t in test_linear_equal test_linear_large_equal test_norm_linear_equal \
        test_norm_gates_equal test_linear_near test_attn_equal test_attn_near \
        test_place_attn_equal test_window_equal test_cuda_width_equal test_packed_equal; do
        echo "$t cuda-mma-8.0 150 $older $t"
    done
}

# The sanitizers over a reduced set, each if it is there and knows this device. Passes are not recorded
# there, so that a tool sees each launch by itself. Of mma racecheck is asked
# without its tracking of asynchronous copies: with it none has run since each lane arrives for itself.
sanitizers() {
    local tool t s options
    s=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$s" ] || { echo "gpu_test: no compute-sanitizer here: not run" >&2; return; }
    for tool in $tools; do
        for t in "test_cuda_width_equal thin-mma" "test_place_attn_equal thin-mma" \
            "test_norm_gates_equal thin-mma" "test_cuda_width_equal thin" \
            "test_attn_matrix_equal thin" "test_tile_equal thin"; do
            options="--error-exitcode 9 --print-limit 20"
            [ "$tool ${t#* }" = "racecheck thin-mma" ] && options+=" --racecheck-memcpy-async no"
            echo "$tool/$t 240 $s --tool $tool $options $bin ${t% *}"
        done
    done
}

# What a tool counted: errors, or hazards.
counted() { # log
    sed -nE 's/^=+ (ERROR|RACECHECK) SUMMARY: ([0-9]+ [a-z]+).*/\2/p' "$1" | tail -n 1
}

# Runs one piece of work; leaves "result seconds" in its file.
one() { # name device limit command...
    local name=$1 device=$2 limit=$3 log rc t0 t1 result thin=
    shift 3
    log=$out/log/${name//\//-}.$device
    case $device in thin*) thin=1 ;; esac
    t0=$(date +%s.%N)
    (cd "$out" && case $device in
        thin) export LS_TEST_DEVICE=cuda ;;
        thin-mma | cuda-mma-8.0) export LS_TEST_DEVICE=cuda-mma ;;
        *) export LS_TEST_DEVICE=$device ;;
        esac
        export LS_TEST_THIN=$thin LS_TEST_EAGER=$thin GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=4 TMPDIR=${TMPDIR:-/tmp}
        exec timeout -k 5 "$limit" "$@") >"$log" 2>&1 </dev/null
    rc=$?
    t1=$(date +%s.%N)
    case $rc in
    0) result=ok ;;
    77) result=SKIPPED ;;
    124 | 137) result=TIME ;;
    *) result="FAIL($rc)" ;;
    esac
    # the tool is there, but not for this device or this kind of machine
    if [ -n "$thin" ] && [ $rc -ne 0 ] && grep -qE 'Device not supported|not supported on this' "$log"; then
        result="tool n/a"
    fi
    printf '%-38s %-14s %-9s %6.1f  %s\n' "$name" "$device" "$result" \
        "$(echo "$t1 $t0" | awk '{print $1 - $2}')" "${thin:+$(counted "$log")}" | tee "$log.row"
}

run() {
    [ -x "$bin" ] || die "run: no $out/ls_gpu_tests: run scripts/gpu_test.sh build where nvcc is"
    export LD_LIBRARY_PATH=$PWD/$out${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    rm -rf "$out/log"
    mkdir -p "$out/log"
    [ -n "$sanitize" ] || { xz -dc "$out/ls_gpu_tests_8.0.xz" >"$older" && chmod +x "$older"; }
    command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    printf '%-38s %-14s %-9s %6s\n' test device result seconds
    local list name device limit command started=$SECONDS
    list=$([ -n "$sanitize" ] || work)
    [ -n "$quick" ] || list+=$'\n'$(sanitizers)
    while read -r name device limit command; do
        [ -n "$name" ] && [[ $name =~ $only ]] || continue
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
        # shellcheck disable=SC2086
        one "$name" "$device" "$limit" $command &
    done <<<"$list"
    wait
    local bad
    bad=$(cat "$out"/log/*.row 2>/dev/null | grep -cE 'FAIL|TIME|SKIPPED')
    if [ -z "$quick$sanitize" ] && [ -d "$out/mutants" ] && [[ mutants =~ $only ]]; then
        tests/mutations/run.sh --gpu-run "$PWD/$out/mutants" || bad=$((bad + 1))
    fi
    if [ "$bad" -gt 0 ]; then
        for row in $(grep -lE 'FAIL|TIME|SKIPPED' "$out"/log/*.row); do
            echo "---- ${row%.row}"
            grep -vE '^\[ +(RUN|OK|==*) ' "${row%.row}" | tail -n 12
        done
    fi
    echo "gpu_test: $(cat "$out"/log/*.row 2>/dev/null | wc -l) runs, $bad bad, $((SECONDS - started)) s"
    [ "$bad" -eq 0 ] && ls "$out"/log/*.row >/dev/null 2>&1
}

# A GPU that answers; a compiler with the packages beside it.
has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }
has_build() { command -v nvcc >/dev/null && pkg-config --exists cmocka jansson gsl lua5.4 2>/dev/null; }

case $verb in
build) build ;;
run) run ;;
*)
    if has_build; then build; fi
    if has_gpu; then
        run
    else
        has_build || die "neither a GPU nor what a build needs is here"
        echo "gpu_test: no GPU here: carry the tree with $out to one, and there scripts/gpu_test.sh run"
    fi
    ;;
esac

#!/usr/bin/env bash
# Seeds each fault of tests/mutations/*.mut into a scratch copy of the tree, rebuilds, and shows which
# test caught it. A fault that nothing catches is a hole in the tests: exit status 1.
#
#   tests/mutations/run.sh [NAME...]     all that a CPU can catch, or those named (without .mut)
#   tests/mutations/run.sh --gpu-build DIR [NAME...]   where nvcc is: a test program for each fault,
#                                        seeded into the CUDA side alone, packed into DIR
#   tests/mutations/run.sh --gpu-run DIR               where the GPU is: runs them; needs no compiler
#
# A .mut file: "file:", "test:" (the tests that have to catch it, any of them), "why:", then the old
# text and the new text, each after a line of four dashes. The old text has to occur exactly once.
# gpu_*.mut are faults that only a GPU shows: barriers, and what its own memory does.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=${TMPDIR:-/tmp}/lockstep-mutations
export GOMP_SPINCOUNT=1000

field() { sed -n "s/^$2: *//p" "$1" | head -n 1; }
part() { awk -v want="$2" '/^----$/ {n++; next} n == want' "$1"; }

# Sets the old text of $1.mut to the new one in the scratch tree; the file itself is kept in saved.
seed() { # name
    local mut=$here/$1.mut
    [ -f "$mut" ] || { echo "run.sh: no such fault: $1" >&2; exit 2; }
    file=$(field "$mut" file) tests=$(field "$mut" test)
    cp -p "$scratch/tree/$file" "$scratch/saved"
    OLD=$(part "$mut" 1) NEW=$(part "$mut" 2) perl -0pi -e '
        my ($old, $new) = @ENV{"OLD", "NEW"};
        my $n = () = /\Q$old\E/g;
        die "the old text occurs $n times in $ARGV\n" unless $n == 1;
        s/\Q$old\E/$new/' "$scratch/tree/$file" || { cp -p "$scratch/saved" "$scratch/tree/$file"; exit 2; }
}

copy_tree() {
    mkdir -p "$scratch/tree"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard -- . ':!experiments/results' |
        rsync -rlpc --delete --from0 --files-from=- ./ "$scratch/tree/" 2>/dev/null) ||
        (cd "$top" && tar cf - --exclude=./build --exclude=./.git . | (cd "$scratch/tree" && tar xf -))
}

# ---- on a GPU ---------------------------------------------------------------------------------------

# What a GPU is asked to catch: the faults of the split and of the locator, the barriers, rows that
# blocks share, uploads, and rows that a rewind should have dropped.
gpu_names=(merge_drops_l_weight chunk_misses_last_key merge_first_max merge_no_rescale
    piece_no_rescale gpu_garbage_in_empty_slot gpu_barrier_scores gpu_barrier_softmax
    gpu_barrier_merge gpu_barrier_stats gpu_packed_butterfly gpu_mma_total_misses_range
    gpu_mma_left_row_of_before gpu_mma_squares_unweighted gpu_mma_scratch_freed_at_once
    gpu_mma_q4_k_short_sums gpu_mma_q8_0_scale_of_8 gpu_mma_gates_of_first_pair
    gpu_mma_gates_pair_parted gpu_mma_gates_x16_of_gate
    gpu_norm_shared_in_place gpu_norm_add_forgotten gpu_norm_add_of_row_0 gpu_upload_buffer_reused
    gpu_stats_join_misses_segment gpu_stats_first_totals gpu_accept_walks_no_further
    gpu_graph_of_other_filters gpu_mma_keys_before_place gpu_mma_own_keys_not_in_tile
    gpu_mma_counter_left_behind gpu_mma_near_part_of_block gpu_mma_turned_backwards
    gpu_mma_ring_of_large_device gpu_mma_rows_not_stored gpu_mma_sums_overwritten
    gpu_mma_q4_k_upper_bits gpu_mma_place_copied_over no_rewind)

build_or_stop() { # name target
    ninja -C "$gpu" "$2" >"$scratch/build.log" 2>&1 && return
    tail -n 20 "$scratch/build.log"
    cp -p "$scratch/saved" "$scratch/tree/$file" 2>/dev/null || true
    echo "run.sh: $1 does not build" >&2
    exit 2
}

# A fault of the kernels goes into the CUDA library alone, which is linked with the sound rest: the
# CPU's side of every comparison stays right. Any other fault goes into the whole program.
gpu_build() { # DIR [NAME...]
    local dir=$1 name target link pack=$scratch/pack
    shift
    [ $# -gt 0 ] || set -- "${gpu_names[@]}"
    gpu=$scratch/gpu
    copy_tree
    cmake -S "$scratch/tree" -B "$gpu" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLS_BODY_OPT=-O1 \
        -DLS_POISON=ON -DLS_WERROR=OFF -DLS_CUDA=ON -DLS_STATIC=ON \
        "-DCMAKE_CUDA_ARCHITECTURES=${LS_CUDA_ARCHS:-90}" >"$scratch/configure.log" 2>&1 ||
        { cat "$scratch/configure.log"; exit 2; }
    file=CMakeLists.txt
    build_or_stop "the tree" ls_gpu_kernel_tests
    build_or_stop "the tree" ls_gpu_tests
    rm -rf "$scratch/sound" "$dir" "$pack"
    mkdir -p "$dir" "$pack"
    cp -a "$gpu/kernels" "$scratch/sound"
    for name in "$@"; do
        seed "$name"
        case $file in
        kernels/*)
            target=ls_gpu_kernel_tests
            case $tests in *test_cuda_*_equal*) target=ls_gpu_tests ;; esac # passes, too
            build_or_stop "$name" ls_kernels_cuda
            link=$(ninja -C "$gpu" -t commands "$target" | tail -n 1)
            (cd "$gpu" && sh -c "$link") >"$scratch/build.log" 2>&1 ||
                { tail "$scratch/build.log"; exit 2; }
            ;;
        *)
            target=ls_gpu_tests
            build_or_stop "$name" "$target"
            ;;
        esac
        strip -o "$pack/$name" "$gpu/tests/gpu/$target"
        echo "$tests" >"$pack/$name.tests"
        cp -p "$scratch/saved" "$scratch/tree/$file"
        case $file in
        kernels/*) rm -rf "$gpu/kernels" && cp -a "$scratch/sound" "$gpu/kernels" ;;
        *) touch "$scratch/tree/$file" ;;
        esac
        printf '%-28s built\n' "$name"
    done
    # the programs differ in little: one archive, which a window of 64 MiB sees as a whole
    tar -C "$pack" -cf - . | xz -9 >"$dir/mutants.tar.xz"
    printf 'packed: %s\n' "$(du -h "$dir/mutants.tar.xz" | cut -f 1)"
}

# The first test that fails has caught the fault. A test that runs out of its time has, too.
gpu_one() { # DIR program
    local name log t rc by='' device=cuda t0=$SECONDS
    name=$(basename "$2")
    log=$1/$name.log
    case $name in gpu_mma_*) device=cuda-mma ;; esac
    for t in $(<"$2.tests"); do
        "$2" | grep -x "$t" >/dev/null || continue
        rc=0
        (cd "$1/.." && LS_TEST_DEVICE=$device OMP_NUM_THREADS=4 timeout -k 5 90 "$2" "$t") \
            >"$log" 2>&1 </dev/null || rc=$?
        [ $rc -ne 77 ] || { by=SKIPPED; break; }
        [ $rc -eq 0 ] || { by=$t; break; }
    done
    case $by in
    '') printf '%-28s %-9s %4d s\n' "$name" MISSED $((SECONDS - t0)) ;;
    SKIPPED) printf '%-28s %-9s %4d s  %s\n' "$name" SKIPPED $((SECONDS - t0)) "$(tail -n 1 "$log")" ;;
    *) printf '%-28s %-9s %4d s  %s\n' "$name" caught $((SECONDS - t0)) "$by" ;;
    esac | tee "$1/$name.row"
}

gpu_run() { # DIR
    local f pack
    [ -f "$1/mutants.tar.xz" ] || { echo "run.sh: no $1/mutants.tar.xz: --gpu-build makes it" >&2; exit 2; }
    rm -f "$1"/*.row
    pack=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$pack'" EXIT
    tar -C "$pack" -xJf "$1/mutants.tar.xz" 2>/dev/null ||
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
            "$1/mutants.tar.xz" "$pack" || { echo "run.sh: neither xz nor python3 unpacks it" >&2; exit 2; }
    export LD_LIBRARY_PATH=$1/..${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # cmocka lies there
    printf '%-28s %-9s %6s  %s\n' fault result time 'caught by'
    for f in "$pack"/*.tests; do
        while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n || true; done
        gpu_one "$1" "${f%.tests}" &
    done
    wait
    printf '\n%d caught, %d not\n' "$(cat "$1"/*.row | grep -c ' caught ')" \
        "$(cat "$1"/*.row | grep -vc ' caught ')"
    ! cat "$1"/*.row | grep -qv ' caught '
}

case ${1:-} in
--gpu-build) shift; gpu_build "${@:?--gpu-build DIR}"; exit ;;
--gpu-run) gpu_run "${2:?--gpu-run DIR}"; exit ;;
esac

# ---- on the CPU -------------------------------------------------------------------------------------

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for f in "$here"/*.mut; do
        case $f in */gpu_*) ;; *) names+=("$(basename "$f" .mut)") ;; esac
    done
fi

copy_tree
cmake -S "$scratch/tree" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLS_BODY_OPT=-O1 \
    -DLS_POISON=ON -DLS_WERROR=OFF >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log"; exit 2; }

caught=0 missed=0
printf '%-28s %-9s %s\n' fault result 'caught by'
for name in "${names[@]}"; do
    seed "$name"
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

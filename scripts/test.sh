#!/usr/bin/env bash
# Everything a change has to pass on a machine without a GPU: both builds, all tests in the first,
# all but the slow ones and those on real models under the address and undefined-behaviour sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/deps.sh
jobs=$(nproc)

build() { # preset
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

build cpu
ctest --preset cpu -j "$jobs"
build cpu-asan
ctest --preset cpu-asan -j "$jobs" -LE 'slow|models'

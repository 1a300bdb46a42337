#!/usr/bin/env bash
# Formats the C and CUDA sources with .clang-format; --check only says which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-format >/dev/null; then
    echo "format: clang-format is not installed (Debian: apt-get install clang-format)" >&2
    exit 2
fi
mapfile -t files < <(find kernels spec tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
case "${1:-}" in
"") clang-format -i "${files[@]}" ;;
--check) clang-format --dry-run -Werror "${files[@]}" ;;
*)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac

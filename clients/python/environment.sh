#!/usr/bin/env bash
# Prints the path of the Python in a virtual environment with the packages of the file $1 [requirements.txt], outside of the checkout, and
# creates the environment if it is missing. If the file has hashes, pip requires a hash for each package.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

file=$here/${1:-requirements.txt}
pin=$(sha256sum "$file" | cut -c1-16)
venv="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools/python-$pin"
if [ ! -e "$venv/.complete" ]; then
    echo "python: installing ${file##*/} (once)" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$file" >&2
    touch "$venv/.complete"
fi
echo "$venv/bin/python"

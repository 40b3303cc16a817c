#!/usr/bin/env bash
# Prints the Python of an environment with requirements.txt installed, outside of the checkout; makes it if need be.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

pin=$(sha256sum "$here/requirements.txt" | cut -c1-16)
venv="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools/python-$pin"
if [ ! -e "$venv/.complete" ]; then
    echo "python: installing requirements.txt (once)" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
    touch "$venv/.complete"
fi
echo "$venv/bin/python"

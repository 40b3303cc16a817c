#!/usr/bin/env bash
# Runs buf, from the npm registry at the version and checksum in scripts/buf/package-lock.json. The program is cached outside of
# the checkout.
set -euo pipefail
pins=$(cd "$(dirname "${BASH_SOURCE[0]}")/buf" && pwd)

pin=$(sha256sum "$pins/package-lock.json" | cut -c1-16)
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools/buf-$pin"
buf="$tools/node_modules/@bufbuild/buf-linux-$(uname -m | sed s/x86_64/x64/)/bin/buf"
if [ ! -x "$buf" ]; then
    command -v npm >/dev/null || { echo "buf: npm is not on the PATH" >&2; exit 1; }
    echo "buf: installing buf (once)" >&2
    mkdir -p "$tools"
    cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$tools/"
    (cd "$tools" && npm ci --ignore-scripts --loglevel=error >/dev/null)
    [ -x "$buf" ] || { echo "buf: unsupported platform $(uname -sm)" >&2; exit 1; }
fi
exec "$buf" "$@"

#!/usr/bin/env bash
# Lints the admin API's proto files (rules in buf.yaml). The linter comes from the npm registry at the version and
# checksum in scripts/buf/package-lock.json, and is kept outside of the checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pin=$(sha256sum scripts/buf/package-lock.json | cut -c1-16)
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools/buf-$pin"
buf="$tools/node_modules/@bufbuild/buf-linux-$(uname -m | sed s/x86_64/x64/)/bin/buf"
if [ ! -x "$buf" ]; then
    command -v npm >/dev/null || { echo "proto-lint: npm is not on the PATH" >&2; exit 1; }
    echo "proto-lint: installing buf (once)" >&2
    mkdir -p "$tools"
    cp scripts/buf/package.json scripts/buf/package-lock.json scripts/buf/.npmrc "$tools/"
    (cd "$tools" && npm ci --ignore-scripts --loglevel=error >/dev/null)
    [ -x "$buf" ] || { echo "proto-lint: no buf for $(uname -sm)" >&2; exit 1; }
fi

"$buf" lint
"$buf" format --diff --exit-code

#!/usr/bin/env bash
# Checks deploy/grafana/*.json with the TypeScript compiler against the types that Grafana publishes, for missing, wrong and unknown
# fields. scripts/grafana/package-lock.json has versions and checksums. The packages are cached outside of the checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pins=scripts/grafana

pin=$(cat "$pins"/package-lock.json "$pins"/types.ts "$pins"/tsconfig.json | sha256sum | cut -c1-16)
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools/grafana-$pin"
if [ ! -e "$tools/complete" ]; then
    command -v npm >/dev/null || { echo "dashboard: npm is not on the PATH" >&2; exit 1; }
    echo "dashboard: installing the schema (once)" >&2
    mkdir -p "$tools"
    cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$pins/types.ts" "$tools/"
    (cd "$tools" && npm ci --ignore-scripts --loglevel=error >/dev/null)
    touch "$tools/complete"
fi
work=$(mktemp -d "$tools/check.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp "$pins/tsconfig.json" "$work/"
for dashboard in deploy/grafana/*.json; do
    {
        echo 'import type { Coxswain } from "../types";'
        printf 'export const dashboard: Coxswain = '
        cat "$dashboard"
    } >"$work/dashboard.ts"
    (cd "$work" && node "$tools/node_modules/typescript/bin/tsc" -p .) ||
        { echo "dashboard: $dashboard does not match the schema of Grafana" >&2; exit 1; }
done

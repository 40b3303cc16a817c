#!/usr/bin/env bash
# Generates the TypeScript client from proto/, with protoc-gen-es as pinned in package-lock.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

[ -x node_modules/.bin/protoc-gen-es ] || npm ci --ignore-scripts --loglevel=error >/dev/null
rm -rf src/gen
../../scripts/buf.sh generate ../../proto --template buf.gen.yaml

#!/usr/bin/env bash
# Checks the spelling of FILES, or of everything, with typos. typos.toml has the exceptions.
# Usage: scripts/spelling.sh [FILE...]
set -euo pipefail
typos=$("$(dirname "${BASH_SOURCE[0]}")/tool.sh" typos)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] || { cd "$root" && set -- .; }
"$typos" --config "$root/typos.toml" --hidden --format brief "$@" || {
    echo "spelling: correct these words, or add an exception with its reason to typos.toml" >&2
    exit 1
}

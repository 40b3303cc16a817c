#!/usr/bin/env bash
# Checks the prose of FILES, or of all documents, with Vale. .vale.ini has the exceptions, .vale/Coxswain the rules of docs/style.md.
# Usage: scripts/prose.sh [FILE...]
set -euo pipefail
vale=$("$(dirname "${BASH_SOURCE[0]}")/tool.sh" vale)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# = 0 ]; then
    cd "$root"
    mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.md')
    set -- "${files[@]}"
fi
"$vale" --config "$root/.vale.ini" --output line "$@" || {
    echo "prose: rewrite these sentences; docs/style.md has the rules and examples" >&2
    exit 1
}

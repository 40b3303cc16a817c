#!/usr/bin/env bash
# Checks prose with Vale: all documents and all strings that users read, or FILES, which are documents or Rust sources. .vale/Coxswain has
# the rules of docs/style.md; .vale.ini and .vale/strings.tsv have the exceptions.
# Usage: scripts/prose.sh [FILE...]
set -euo pipefail
vale=$("$(dirname "${BASH_SOURCE[0]}")/tool.sh" vale)
documents=() sources=() all=false
for file in "$@"; do
    case $file in
        *.rs) sources+=("$(realpath "$file")") ;;
        *) documents+=("$(realpath "$file")") ;;
    esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# = 0 ]; then
    all=true
    mapfile -t documents < <(git ls-files --cached --others --exclude-standard '*.md')
fi
code=0
[ ${#documents[@]} = 0 ] || "$vale" --config .vale.ini --output line "${documents[@]}" || code=1
if $all || [ ${#sources[@]} -gt 0 ]; then
    python3 scripts/strings.py check "$vale" "${sources[@]}" || code=1
fi
[ $code = 0 ] || echo "prose: rewrite these sentences; docs/style.md has the rules and examples" >&2
exit $code

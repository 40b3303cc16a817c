#!/usr/bin/env bash
# The integration tests, and in the end where their time went. Arguments are the test binary's: names, --nocapture …
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

times=$(mktemp)
trap 'rm -f "$times"' EXIT
code=0
COXSWAIN_TIMES=$times ${CARGO:-cargo} test --test integration -- "$@" || code=$?
if [ -s "$times" ]; then
    printf '\nthe slowest tests, in seconds (of that starting control planes; waiting for a turn before):\n'
    sort -rn "$times" | head -15 | awk -F'\t' '{ printf "%8.1f  (%5.1f; %6.1f)  %s\n", $1, $4, $2, $5 }'
    awk -F'\t' '{ tests += 1; took += $1; planes += $3; starting += $4 }
        END { printf "%8.1f  in %d tests that stood on %d control planes, whose starts took %.1f\n", took, tests, planes, starting }' "$times"
fi
exit "$code"

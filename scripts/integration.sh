#!/usr/bin/env bash
# The integration tests, and in the end where their time went. Arguments are the test binary's: names, --nocapture …
# A test whose wait ended in vain on a busy machine is tried once more, with nothing beside it, and said to be slow. So is a
# comparison with a recording: on a busy machine a controller retries less often before a scenario goes on. What fails otherwise is
# not tried again: it may be the one interleaving that matters.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

times=$(mktemp) log=$(mktemp)
trap 'rm -f "$times" "$log"' EXIT
export COXSWAIN_TIMES=$times

run() {
    ${CARGO:-cargo} test --test integration -- "$@"
}

# Each test that failed, and in what words, by tabs.
failed() {
    awk '/^---- .* stdout ----$/ { name = $2; next }
        name != "" && / panicked at / { getline words; print name "\t" words; name = "" }' "$log"
}

# Each test that failed, with up to twelve lines of its message: a log that is cut short still shows the comparison.
excerpts() {
    awk '/^---- .* stdout ----$/ { name = $2; left = 0; next }
        name != "" && / panicked at / { print name; name = ""; left = 12; next }
        /^note: run with / || /^stack backtrace:/ || /^$/ { left = 0 }
        left > 0 { left -= 1; print "    " substr($0, 1, 600) }' "$log"
}

code=0
run "$@" 2>&1 | tee "$log" || code=$?
if [ "$code" != 0 ]; then
    printf '\nin short:\n'
    excerpts
    count=$(sed -n 's/^test result: FAILED.* \([0-9]*\) failed;.*/\1/p' "$log")
    slow='^parity::[a-z_]*_as_under_the_go_manager|: not within [0-9.]*m?s; last seen: '
    if [ "$(failed | grep -c .)" = "$count" ] && ! failed | grep -Eqv "$slow"; then
        mapfile -t again < <(failed | cut -f1)
        printf '\nslow, and tried once more: %s\n' "${again[*]}"
        code=0
        run --exact --test-threads=1 "${again[@]}" || code=$?
    fi
fi
if [ -s "$times" ]; then
    printf '\nthe slowest tests, in seconds (of that starting control planes; waiting for a turn before):\n'
    sort -rn "$times" | head -15 | awk -F'\t' '{ printf "%8.1f  (%5.1f; %6.1f)  %s\n", $1, $4, $2, $5 }'
    awk -F'\t' '{ tests += 1; took += $1; planes += $3; starting += $4 }
        END { printf "%8.1f  in %d tests that stood on %d control planes, whose starts took %.1f\n", took, tests, planes, starting }' "$times"
fi
exit "$code"

#!/usr/bin/env bash
# Runs the integration tests and prints the slowest ones. The arguments are those of the test binary: names, --nocapture …
# A test that timed out while it waited runs once more, alone, because the machine may be busy. So does a comparison with a recording: on
# a busy machine a controller retries less often before the next step of a scenario. No other failure is repeated, because it may show a
# rare interleaving.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

times=$(mktemp) log=$(mktemp)
trap 'rm -f "$times" "$log"' EXIT
export COXSWAIN_TIMES=$times

run() {
    ${CARGO:-cargo} test --test integration -- "$@"
}

# Prints each failed test and the first line of its message, separated by a tab.
failed() {
    awk '/^---- .* stdout ----$/ { name = $2; next }
        name != "" && / panicked at / { getline words; print name "\t" words; name = "" }' "$log"
}

# Prints each failed test with up to 12 lines of its message, so that a truncated log still shows the comparison.
excerpts() {
    awk '/^---- .* stdout ----$/ { name = $2; left = 0; next }
        name != "" && / panicked at / { print name; name = ""; left = 12; next }
        /^note: run with / || /^stack backtrace:/ || /^$/ { left = 0 }
        left > 0 { left -= 1; print "    " substr($0, 1, 600) }' "$log"
}

code=0
run "$@" 2>&1 | tee "$log" || code=$?
if [ "$code" != 0 ]; then
    printf '\nsummary of failures:\n'
    excerpts
    count=$(sed -n 's/^test result: FAILED.* \([0-9]*\) failed;.*/\1/p' "$log")
    slow='^parity::[a-z_]*_as_under_the_go_manager|: not within [0-9.]*m?s; last seen: '
    if [ "$(failed | grep -c .)" = "$count" ] && ! failed | grep -Eqv "$slow"; then
        mapfile -t again < <(failed | cut -f1)
        printf '\ntimed out; running again, alone: %s\n' "${again[*]}"
        code=0
        run --exact --test-threads=1 "${again[@]}" || code=$?
    fi
fi
if [ -s "$times" ]; then
    printf '\nslowest tests, in seconds (in parentheses: start of the control planes; wait before the test):\n'
    sort -rn "$times" | head -15 | awk -F'\t' '{ printf "%8.1f  (%5.1f; %6.1f)  %s\n", $1, $4, $2, $5 }'
    awk -F'\t' '{ tests += 1; took += $1; planes += $3; starting += $4 }
        END { printf "%8.1f  in total, for %d tests on %d control planes; starting the control planes took %.1f\n", took, tests, planes, starting }' "$times"
fi
exit "$code"

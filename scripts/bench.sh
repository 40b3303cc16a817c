#!/usr/bin/env bash
# The figures beside the Go manager's, on one real API server. `scripts/bench.sh NAME` runs one benchmark of those in
# Cargo.toml. A run of all scenarios at full size writes its tables and its chart into the documentation; with SCENARIOS,
# SCALE or ONLY they are printed, and kept in target/bench. A run of all scenarios counts allocations and instructions too.
# COXSWAIN names a binary that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = micro ]; then
    exec cargo bench --profile dist --bench micro
fi
if [ -z "${COXSWAIN:-}" ]; then
    echo "bench: building Coxswain as it ships (profile dist)" >&2
    COXSWAIN=$(deploy/image/build.sh)
    export COXSWAIN
fi
if [ $# -gt 0 ]; then
    exec cargo bench --profile dev --bench "$1"
fi
if [ -z "${SCENARIOS:-}${SCALE:-}${ONLY:-}" ]; then
    export DOCS=${DOCS:-1}
fi
cargo bench --profile dev --bench sidebyside
if [ -n "${SCENARIOS:-}${ONLY:-}" ]; then
    exit
fi
echo "bench: what an event, a decision, a queue's turn cost: time and allocations" >&2
env -u INSTRUCTIONS cargo bench --profile dist --bench micro
if command -v valgrind >/dev/null; then
    echo "bench: counting the instructions of what runs most, beside those kept in benches/instructions.tsv" >&2
    INSTRUCTIONS=${INSTRUCTIONS:-1} cargo bench --profile dist --bench micro
else
    echo "bench: instructions are not counted: valgrind is not on the PATH" >&2
fi

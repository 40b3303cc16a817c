#!/usr/bin/env bash
# Measures Coxswain next to kube-controller-manager, on one real API server. `scripts/bench.sh NAME` runs one benchmark of Cargo.toml. A
# run of all scenarios at full size writes its tables and its chart into the documentation, and counts allocations and instructions.
# With SCENARIOS, SCALE or ONLY the figures are printed and stored in target/bench. COXSWAIN names a built program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = micro ]; then
    exec cargo bench --profile dist --bench micro
fi
if [ -z "${COXSWAIN:-}" ]; then
    echo "bench: building Coxswain with the release profile (dist)" >&2
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
echo "bench: measuring time and allocations of events, plans and queues" >&2
env -u INSTRUCTIONS cargo bench --profile dist --bench micro
if command -v valgrind >/dev/null; then
    echo "bench: counting instructions, and comparing them with the counts in benches/instructions.tsv" >&2
    INSTRUCTIONS=${INSTRUCTIONS:-1} cargo bench --profile dist --bench micro
else
    echo "bench: skipping the count of instructions: valgrind is not on the PATH" >&2
fi

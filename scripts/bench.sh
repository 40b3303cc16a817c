#!/usr/bin/env bash
# The figures beside the Go manager's, on one real API server. `scripts/bench.sh NAME` runs one benchmark.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "bench: building Coxswain as it ships (profile dist)" >&2
cargo build --profile dist --bin coxswain
export COXSWAIN=$PWD/target/dist/coxswain
if [ $# -gt 0 ]; then
    exec cargo bench --profile dev --bench "$1"
fi
cargo bench --profile dev --bench memory
cargo bench --profile dev --bench streams
cargo bench --profile dev --bench garbage
cargo bench --profile dev --bench namespace
cargo bench --profile dev --bench endpoints

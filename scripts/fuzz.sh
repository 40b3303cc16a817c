#!/usr/bin/env bash
# Runs the fuzz target TARGET [admin_requests] for SECONDS [60]: `scripts/fuzz.sh [TARGET] [SECONDS]`. It needs no nightly compiler,
# because it runs without a sanitizer: the crates have no unsafe code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools"
if [ ! -x "$tools/bin/cargo-fuzz" ]; then
    echo "fuzz: installing cargo-fuzz (once)" >&2
    cargo install --quiet --locked --root "$tools" --version 0.13.1 cargo-fuzz
fi
target=${1:-admin_requests}
dir=fuzz limits=()
if [ "$target" = cel_expressions ]; then
    # An input of a few KB may not take seconds or hundreds of megabytes.
    dir=crates/cel-check/fuzz limits=(-timeout=10 -rss_limit_mb=512)
fi
PATH="$tools/bin:$PATH" exec cargo fuzz run --fuzz-dir "$dir" --sanitizer none "$target" -- -max_total_time="${2:-60}" "${limits[@]}"

#!/usr/bin/env bash
# Checks formatting, spelling, prose, lints and licenses. Only this script makes warnings errors. It leaves RUSTFLAGS alone, so that
# nothing is built twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fmt --all --check
scripts/spelling.sh
scripts/prose.sh
scripts/proto-lint.sh
scripts/dashboard-check.sh
cargo clippy --workspace --all-targets -- -D warnings
# The fuzz targets are separate crates with dependencies of their own. No other command compiles them.
for fuzz in fuzz crates/cel-check/fuzz; do
    cargo fmt --manifest-path "$fuzz/Cargo.toml" --check
    [ -z "${COXSWAIN_FULL:-}" ] ||
        CARGO_TARGET_DIR=target/fuzz cargo clippy --locked --manifest-path "$fuzz/Cargo.toml" -- -D warnings
done

# cargo-deny is installed from the registry and cached outside of the checkout. scripts/audit.sh checks advisories, because not every
# machine reaches the host of the advisory database.
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools"
deny="$tools/bin/cargo-deny"
if [ ! -x "$deny" ]; then
    echo "lint: installing cargo-deny (once)" >&2
    cargo install --quiet --locked --root "$tools" --version 0.20.2 cargo-deny
fi
"$deny" --log-level error check bans licenses sources

unformatted=$(gofmt -l tests/controlplane tests/oracle)
if [ -n "$unformatted" ]; then
    printf 'lint: run gofmt -w on these files: %s\n' "$unformatted" >&2
    exit 1
fi
(cd tests/controlplane && go vet ./...)
(cd tests/oracle && go vet ./...)
(cd tests/controlplane/collector && go vet ./...)
[ -z "${COXSWAIN_FULL:-}" ] || (cd tests/controlplane/csi && go vet ./...)

#!/usr/bin/env bash
# Builds the released program for the architecture $1 (amd64 or arm64 [this machine's]), and prints its path. Equal sources give equal
# bytes, wherever the checkout, Cargo's directory and the target directory are. For another architecture, install the target of the
# toolchain and a cross compiler:
#   rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${1:-$(uname -m)} in
    amd64 | x86_64) target=x86_64-unknown-linux-gnu ;;
    arm64 | aarch64) target=aarch64-unknown-linux-gnu ;;
    *) printf 'build: unsupported architecture %s; use amd64 or arm64\n' "$1" >&2; exit 2 ;;
esac
if [ "${target%%-*}" != "$(uname -m)" ]; then
    linker=${target%%-*}-linux-gnu-gcc
    command -v "$linker" >/dev/null || { printf 'build: install the linker %s for %s\n' "$linker" "$target" >&2; exit 1; }
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$linker
fi
# Panic locations and the output of build scripts contain paths. The last matching replacement wins.
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target_dir"
for place in "$PWD=/src" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$target_dir=/src/target"; do
    RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$place"
    CFLAGS="${CFLAGS:-} -ffile-prefix-map=$place"
done
# The profile of the benchmarks (scripts/profile.sh records it) selects the functions that are compiled for speed. A function that has
# changed since is compiled without a profile. COXSWAIN_COUNT names a directory for new counts instead.
if [ -n "${COXSWAIN_COUNT:-}" ]; then
    RUSTFLAGS+=" -Cprofile-generate=$COXSWAIN_COUNT"
else
    RUSTFLAGS+=" -Cprofile-use=$PWD/deploy/image/coxswain.profdata -Cllvm-args=-no-pgo-warn-mismatch"
    if [ "$target" = x86_64-unknown-linux-gnu ]; then
        # The functions that run are placed together, those of an idle manager first, so that the rest of the program stays on disk. The
        # linker is lld, which Rust ships.
        gzip -dc deploy/image/coxswain.order.gz >"$target_dir/coxswain.order"
        for argument in "--symbol-ordering-file=$target_dir/coxswain.order" --no-warn-symbol-ordering; do
            RUSTFLAGS+=" -Clink-arg=-Wl,$argument"
        done
    fi
fi
export RUSTFLAGS CFLAGS
"${CARGO:-cargo}" build --locked --profile dist --bin coxswain --target "$target" >&2
printf '%s\n' "$target_dir/$target/dist/coxswain"

#!/usr/bin/env bash
# Builds the program that ships, for the architecture $1 (amd64 or arm64, this machine's if none is given), and prints where it
# is. Equal sources give equal bytes, wherever the checkout, Cargo's directory and the target directory are. For another
# architecture than the machine's the toolchain must have its target, and there must be a cross compiler:
#   rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${1:-$(uname -m)} in
    amd64 | x86_64) target=x86_64-unknown-linux-gnu ;;
    arm64 | aarch64) target=aarch64-unknown-linux-gnu ;;
    *) printf 'build: there is no image for %s\n' "$1" >&2; exit 2 ;;
esac
if [ "${target%%-*}" != "$(uname -m)" ]; then
    linker=${target%%-*}-linux-gnu-gcc
    command -v "$linker" >/dev/null || { printf 'build: %s is needed for %s\n' "$linker" "$target" >&2; exit 1; }
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$linker
fi
# Paths are in panics' places, and in what build scripts write; of several that fit the last one counts.
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target_dir"
for place in "$PWD=/src" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$target_dir=/src/target"; do
    RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$place"
    CFLAGS="${CFLAGS:-} -ffile-prefix-map=$place"
done
# What runs most is compiled for speed, by what was counted while the benchmarks ran (scripts/profile.sh makes it anew). A function
# that has changed since is compiled as without. COXSWAIN_COUNT names a directory to count into instead.
if [ -n "${COXSWAIN_COUNT:-}" ]; then
    RUSTFLAGS+=" -Cprofile-generate=$COXSWAIN_COUNT"
else
    RUSTFLAGS+=" -Cprofile-use=$PWD/deploy/image/coxswain.profdata -Cllvm-args=-no-pgo-warn-mismatch"
    if [ "$target" = x86_64-unknown-linux-gnu ]; then
        # What runs at all lies together, what runs at rest first, so that the rest of the program stays on disk. The linker is Rust's
        # own there, lld.
        gzip -dc deploy/image/coxswain.order.gz >"$target_dir/coxswain.order"
        for argument in "--symbol-ordering-file=$target_dir/coxswain.order" --no-warn-symbol-ordering; do
            RUSTFLAGS+=" -Clink-arg=-Wl,$argument"
        done
    fi
fi
export RUSTFLAGS CFLAGS
"${CARGO:-cargo}" build --locked --profile dist --bin coxswain --target "$target" >&2
printf '%s\n' "$target_dir/$target/dist/coxswain"

#!/usr/bin/env bash
# Writes the software bill of materials of the program $2 to $1, as CycloneDX 1.5: all compiled crates with their licenses.
set -euo pipefail
out=$(realpath -m "$1")
case $(readelf -h "$2" | sed -n 's/ *Machine: *//p') in
    *X86-64*) target=x86_64-unknown-linux-gnu ;;
    AArch64*) target=aarch64-unknown-linux-gnu ;;
    *) printf 'sbom: unsupported architecture of %s; use amd64 or arm64\n' "$2" >&2; exit 1 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cyclonedx=$(scripts/tool.sh cargo-cyclonedx)
# cargo-cyclonedx writes a file next to each Cargo.toml, so the script works on a copy. Cargo requires that the sources exist.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z '*Cargo.toml' Cargo.lock '*.rs' | xargs -0 cp --parents --target-directory="$work"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
SOURCE_DATE_EPOCH=$epoch "$cyclonedx" cyclonedx --manifest-path "$work/Cargo.toml" --format json --spec-version 1.5 \
    --describe binaries --no-build-deps --quiet --target "$target"
sed "s|$work|/src|g" "$work/coxswain_bin.cdx.json" >"$out"

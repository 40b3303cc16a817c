#!/usr/bin/env bash
# Builds the image as an OCI layout in OUT [target/image], without a container engine: program, software bill of materials, root
# filesystem, layout. ARCH is amd64 or arm64; COXSWAIN names a built program. Push the image with `skopeo copy oci:target/image:VERSION docker://…`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${OUT:-target/image}
program=${COXSWAIN:-$(deploy/image/build.sh ${ARCH:+"$ARCH"})}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deploy/image/sbom.sh "$work/sbom.cdx.json" "$program"
SBOM=$work/sbom.cdx.json deploy/image/rootfs.sh "$program" "$work/rootfs"
scripts/empty.sh "$out" oci-layout
rmdir "$out"
deploy/image/layout.sh "$work/rootfs" "$out"
printf '%s\n' "$out"

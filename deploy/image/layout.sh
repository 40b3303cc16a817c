#!/usr/bin/env bash
# Creates an image of the root filesystem $1 in the new OCI layout $2, tagged with the program's version, without a container
# engine and without root. Equal inputs give equal bytes.
set -euo pipefail
export LC_ALL=C
rootfs=$(realpath "$1")
layout=$(realpath -m "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
umoci=$(scripts/tool.sh umoci)
version=$(sed -n '/^\[workspace.package]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
# REVISION names the revision of a source archive, which has no git directory.
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
created=$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)
case $(readelf -h "$rootfs/usr/local/bin/coxswain" | sed -n 's/ *Machine: *//p') in
    *X86-64*) architecture=amd64 ;;
    AArch64*) architecture=arm64 ;;
    *) printf 'layout: unsupported architecture of the program; use amd64 or arm64\n' >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --create --file "$work/layer.tar" --directory "$rootfs" --sort=name --numeric-owner --owner=0 --group=0 \
    --mtime="@$epoch" --format=pax --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime .
umask 022
"$umoci" init --layout "$layout"
"$umoci" new --image "$layout:$version"
"$umoci" raw add-layer --image "$layout:$version" --history.created "$created" --history.created_by deploy/image/rootfs.sh \
    "$work/layer.tar"
"$umoci" config --image "$layout:$version" --no-history --created "$created" --platform.os linux \
    --platform.arch "$architecture" --config.user 65532:65532 --config.workingdir / \
    --config.env PATH=/usr/local/bin --config.entrypoint /usr/local/bin/coxswain --config.exposedports 10257/tcp \
    --config.label "org.opencontainers.image.title=coxswain" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0" \
    --config.label "org.opencontainers.image.revision=$revision" \
    --config.label "org.opencontainers.image.source=https://github.com/coxswain-dev/coxswain"
"$umoci" gc --layout "$layout"

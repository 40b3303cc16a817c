#!/usr/bin/env bash
# Prints the manifest of the plugin for krew for version $1 and the archives in the other arguments, one for each architecture, named as by
# `make dist`: kubectl-coxswain-VERSION-linux-ARCH.tar.gz.
set -euo pipefail
export LC_ALL=C
template=$(dirname "${BASH_SOURCE[0]}")/coxswain.yaml
version=$1
shift
first='^    - selector:'
sed -e '/^#/d' -e "/$first/,\$d" -e "s/VERSION/$version/g" "$template"
for archive in "$@"; do
    arch=${archive##*-linux-}
    sum=$(sha256sum "$archive" | cut -d' ' -f1)
    sed -n -e "s/VERSION/$version/g; s/ARCH/${arch%.tar.gz}/g; s/SHA256/$sum/" -e "/$first/,\$p" "$template"
done

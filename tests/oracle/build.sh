#!/usr/bin/env bash
# Builds the oracle, and prints the path of the program. It is kept outside of the checkout, as the control plane is, under
# ${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/coxswain}/oracle/HASH; HASH covers its sources, the Go version and the platform.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")"

command -v go >/dev/null || { echo "oracle: go is needed to build the oracle, and is not on the PATH" >&2; exit 1; }
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off

hash=$({
    go env GOVERSION GOOS GOARCH
    sha256sum build.sh go.mod go.sum ./*.go
} | sha256sum | cut -c1-16)
program="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/oracle/$hash/oracle"
if [ ! -x "$program" ]; then
    mkdir -p "${program%/*}"
    echo "oracle: building; the first time takes a minute or two, and downloads Go modules" >&2
    # Two copies of this script may run at once: each builds a file of its own, and the last one stays.
    temporary=$(mktemp "$program.XXXXXX")
    trap 'rm -f "$temporary"' EXIT
    go build -trimpath -o "$temporary" .
    chmod 755 "$temporary"
    mv -T "$temporary" "$program"
fi
printf '%s\n' "$program"

#!/usr/bin/env bash
# Builds the oracle, and prints the path of the program. With the argument `standard` the program has the standard library alone, so that
# no Go module is needed, and answers for certificate requests, certificates and keys. Both programs are kept outside of the checkout, as
# the control plane is, under ${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/coxswain}/oracle/HASH; HASH covers the sources, the Go version and the
# platform.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")"

command -v go >/dev/null || { echo "oracle: go is needed to build the oracle, and is not on the PATH" >&2; exit 1; }
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off

tags=${1:-}
hash=$({
    go env GOVERSION GOOS GOARCH GOROOT
    echo "$tags"
    sha256sum build.sh go.mod go.sum ./*.go
} | sha256sum | cut -c1-16)
program="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/oracle/$hash/oracle"
if [ ! -x "$program" ]; then
    mkdir -p "${program%/*}"
    echo "oracle: building tests/oracle${tags:+ ($tags)}; the first time takes a minute or two" >&2
    # Two copies of this script may run at once: each builds a file of its own, and the last one stays.
    temporary=$(mktemp "$program.XXXXXX")
    trap 'rm -f "$temporary"' EXIT
    if ! go build -trimpath -tags "$tags" -ldflags "-X main.zoneinfo=$(go env GOROOT)/lib/time/zoneinfo.zip" -o "$temporary" .; then
        echo "oracle: the build failed. Without the build tag 'standard', the oracle needs the Go modules of tests/oracle/go.mod; run" \
            "'go mod download' in tests/oracle where a module proxy can be reached" >&2
        exit 1
    fi
    chmod 755 "$temporary"
    mv -T "$temporary" "$program"
fi
printf '%s\n' "$program"

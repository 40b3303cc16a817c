#!/usr/bin/env bash
# Signs the file $1 with the private key SIGNING_KEY (PEM), and writes the signature (SHA-256, in base64) to $1.sig. Users verify it with
# the public key:
#   openssl dgst -sha256 -verify coxswain.pub -signature <(base64 -d SHA256SUMS.sig) SHA256SUMS
set -euo pipefail
umask 022
key=${SIGNING_KEY:?must name the file of a private key (PEM)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
openssl dgst -sha256 -sign "$key" -out "$work/signature" "$1"
openssl pkey -in "$key" -pubout -out "$work/public"
openssl dgst -sha256 -verify "$work/public" -signature "$work/signature" "$1" >&2
base64 -w0 "$work/signature" >"$1.sig"

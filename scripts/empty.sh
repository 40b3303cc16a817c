#!/usr/bin/env bash
# Creates the empty directory $1 for build output. An existing directory is removed only if it is empty or has the file $2, which marks
# earlier build output, because a mistyped OUT may name a home directory.
set -euo pipefail
directory=$1 marker=$2
if [ -e "$directory" ] && [ ! -e "$directory/$marker" ] && [ -n "$(ls -A "$directory")" ]; then
    printf 'empty: %s is not empty and has no %s, so it is not removed; name another directory in OUT\n' "$directory" "$marker" >&2
    exit 1
fi
rm -rf "$directory"
mkdir -p "$directory"

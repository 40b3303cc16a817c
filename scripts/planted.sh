#!/usr/bin/env bash
# Builds a Coxswain with a fault planted again, and lets the differential fuzzer look for it until it finds a
# difference or for SECONDS [1800].
# Usage: scripts/planted.sh ID [SECONDS], where tests/differential/planted/ID.patch is the fault. Prints found or not found, and fails in the latter case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

id=${1:?usage: scripts/planted.sh ID [SECONDS]} limit=${2:-1800}
patch=$PWD/tests/differential/planted/$id.patch
[ -e "$patch" ] || { echo "$patch does not exist" >&2; exit 2; }
# One place for all faults, so that only the files of the last and of this fault are compiled again.
source=$PWD/target/planted/source
git ls-files -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ] && ! cmp -s "$file" "$source/$file"; then
        mkdir -p "$(dirname "$source/$file")"
        cp "$file" "$source/$file"
    fi
done
# Outside of a repository: git would take the paths of the patch as those of this one.
GIT_CEILING_DIRECTORIES=$PWD/target/planted git -C "$source" apply "$patch"
(cd "$source" && ${CARGO:-cargo} build --bin coxswain --target-dir ../build)

log=$PWD/target/planted/$id.log
begin=$(date +%s)
env COXSWAIN="$PWD/target/planted/build/debug/coxswain" FIRST=1 SECONDS="$limit" make differ >"$log" 2>&1 || true
took=$(($(date +%s) - begin))
if grep -q '^different, seeds' "$log"; then
    echo "$id: found after $took s; the story is in $log"
else
    echo "$id: not found in $took s; the log is $log"
    exit 1
fi

#!/usr/bin/env bash
# Builds Coxswain with a fixed fault planted again, and runs the differential fuzzer until it finds a difference or for
# SECONDS [1800]. The printed list must show a difference a second time, and a Coxswain without the fault must show none.
# Usage: scripts/planted.sh ID [SECONDS], where tests/differential/planted/ID.patch is the fault. Prints found or not found. Exit codes: 1 if it was
# not found, 2 if it could not be planted or played.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

id=${1:?usage: scripts/planted.sh ID [SECONDS]} limit=${2:-1800}
patch=$PWD/tests/differential/planted/$id.patch
[ -e "$patch" ] || { echo "$patch does not exist" >&2; exit 2; }
mkdir -p target/planted
exec 9>target/planted/lock
flock 9
# All faults share this copy of the sources, so that only the files that the last and this patch change are compiled again.
source=$PWD/target/planted/source
git ls-files -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ] && ! cmp -s "$file" "$source/$file"; then
        mkdir -p "$(dirname "$source/$file")"
        cp "$file" "$source/$file"
    fi
done
# The copy is no repository. Without the ceiling, git would resolve the paths of the patch in this checkout.
GIT_CEILING_DIRECTORIES=$PWD/target/planted git -C "$source" apply "$patch" || exit 2
(cd "$source" && ${CARGO:-cargo} build --bin coxswain --target-dir ../build) || exit 2

log=$PWD/target/planted/$id.log list=$PWD/target/planted/$id.list
begin=$(date +%s)
env COXSWAIN="$PWD/target/planted/build/debug/coxswain" FIRST=1 SECONDS="$limit" make differ >"$log" 2>&1 || true
took=$(($(date +%s) - begin))
grep -q '^[0-9]* seeds in ' "$log" || { echo "$id: the fuzzer did not run; see $log" >&2; exit 2; }
if ! grep -q '^different, seeds' "$log"; then
    echo "$id: not found in $took s; the log is $log"
    exit 1
fi
# The operations of the first story.
awk '/^=== / { is_story = !/repeats only/ } is_story && /^[0-9]+ operations:$/ { on = 1; next } on && /^  (round [0-9]+:|and [0-9]+ more)/ { exit } on { print substr($0, 3) }' "$log" >"$list"
# Plays the list again. The first argument is a name for the log, the others are for the environment. Prints whether it shows a difference.
again() {
    local name=$1 code=0
    shift
    env LIST="$list" "$@" make differ >"$log.$name" 2>&1 || code=$?
    grep -q '^[0-9]* seeds in ' "$log.$name" || { echo "$id: the fuzzer did not run; see $log.$name" >&2; exit 2; }
    [ "$code" = 0 ] && echo equal || echo different
}
with=$(again with COXSWAIN="$PWD/target/planted/build/debug/coxswain")
without=$(again without)
if [ "$with" = equal ]; then
    echo "$id: not found in $took s; $list shows a difference by chance"
    exit 1
elif [ "$without" = different ]; then
    echo "$id: not found in $took s; a Coxswain without the fault shows a difference in $list, too"
    exit 1
fi
echo "$id: found after $took s; the story is in $log"

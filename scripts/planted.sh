#!/usr/bin/env bash
# Builds Coxswain once with all planted faults (tests/differential/planted/faults.patch), and plays the differential fuzzer with one fault
# after the other until it finds a difference, or for MINUTES [30]. The found list must show a difference a second time with the fault, and
# none without. Prints a table: ID, found or not, seconds, seed, first difference. The logs are in target/planted/.
# Usage: scripts/planted.sh [ID…], all faults that the fuzzer can find by default; scripts/planted.sh build, which only builds the program.
# PROFILE [dev] is the profile of the program; PROGRAM names a program that is built already. Exit codes: 1 if a fault was not found, 2 if
# the faults could not be planted or played.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=$((60 * ${MINUTES:-30})) profile=${PROFILE:-dev} folder=$PWD/target/planted
tables=tests/differential/planted
ids=("$@")
[ "$*" != build ] || ids=()
[ "${#ids[@]}" -gt 0 ] || mapfile -t ids < <(awk -F'\t' '$2 == "patch" { print $1 }' $tables/faults.tsv)
for id in "${ids[@]}"; do
    grep -q "^# $id: " $tables/faults.patch || { echo "$tables/faults.patch does not contain the fault $id" >&2; exit 2; }
done
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9

build() {
    local source=$folder/source
    git ls-files -z | while IFS= read -r -d '' file; do
        if [ -f "$file" ] && ! cmp -s "$file" "$source/$file"; then
            mkdir -p "$(dirname "$source/$file")"
            cp "$file" "$source/$file"
        fi
    done
    # The copy is no repository. Without the ceiling, git would resolve the paths of the patch in this checkout.
    rm -f "$source/crates/machinery/src/planted.rs"
    GIT_CEILING_DIRECTORIES=$folder git -C "$source" apply "$PWD/$tables/faults.patch" || return
    # The dependencies are those of the checkout. `make differ` puts the usual program back in its place.
    (cd "$source" && ${CARGO:-cargo} build --profile "$profile" --bin coxswain --target-dir ../..) || return
    cp "target/${profile/#dev/debug}/coxswain" "$folder/coxswain"
}

program=${PROGRAM:-$folder/coxswain}
[ -n "${PROGRAM:-}" ] || build || exit 2
[ "$*" != build ] || { echo "$program"; exit 0; }

# Plays the fuzzer with a fault, or with none if the ID is empty. The other arguments are for the environment.
play() {
    local id=$1 log=$2 code=0
    shift 2
    env COXSWAIN="$program" M="$id" "$@" make differ >"$log" 2>&1 || code=$?
    grep -q '^[0-9]* seeds in ' "$log" || { echo "the fuzzer did not run; see $log" >&2; exit 2; }
    return $code
}

# Prints the row of a fault.
judge() {
    local id=$1 log=$folder/$1.log list=$folder/$1.list begin took seed first
    begin=$(date +%s)
    play "$id" "$log" FIRST=1 SECONDS="$limit" || true
    took=$(($(date +%s) - begin))
    # The first story: its seed, its operations, its first difference.
    seed=$(sed -n 's/^=== SEED=\([0-9]*\) make differ$/\1/p' "$log" | head -n 1)
    first=$(awk '/^=== / { on = !/repeats only/ } on && /^  round [0-9]+:/ { print; getline; print; getline; print; exit }' "$log" | tr -s ' \n\t' ' ')
    if [ -z "$seed" ]; then
        printf '%s\tnot found\t%s\t\t\n' "$id" "$took"
        return 1
    fi
    awk '/^=== / { is_story = !/repeats only/ } is_story && /^[0-9]+ operations:$/ { on = 1; next } on && /^  (round [0-9]+:|and [0-9]+ more)/ { exit } on { print substr($0, 3) }' "$log" >"$list"
    if play "$id" "$log.with" LIST="$list"; then
        printf '%s\tnot found: the list of operations did not show the difference again\t%s\t%s\t%s\n' "$id" "$took" "$seed" "$first"
        return 1
    elif ! play "" "$log.without" LIST="$list"; then
        printf '%s\tnot found: the list of operations also shows a difference without the fault\t%s\t%s\t%s\n' "$id" "$took" "$seed" "$first"
        return 1
    fi
    printf '%s\tfound\t%s\t%s\t%s\n' "$id" "$took" "$seed" "$first"
}

missed=0
printf 'ID\tfound\tseconds\tseed\tfirst difference\n' | tee "$folder/table.tsv"
for id in "${ids[@]}"; do
    # Not in a pipe: `exit 2` of a fault that could not be played ends the script.
    judge "$id" >"$folder/row" || { [ -s "$folder/row" ] && missed=1; } || exit 2
    tee -a "$folder/table.tsv" <"$folder/row"
done
exit $missed

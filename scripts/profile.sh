#!/usr/bin/env bash
# Makes anew by what the program that ships is compiled and linked: deploy/image/coxswain.profdata, which says how often each
# function runs, and coxswain.order.gz, which lists those that run at all, those of a manager at rest first. They are counted while a
# build for that plays the benchmarks' scenarios, at less than half of their size. Takes an hour on two cores, and rustup's
# llvm-tools. After changes to what runs for each object or request; nothing breaks while they are old.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'profile: %s\n' "$*" >&2; exit 1; }
step() { printf 'profile: %s\n' "$*" >&2; }

tool=$(find "$(rustc --print sysroot)/lib/rustlib" -name llvm-profdata -print -quit)
[ -n "$tool" ] || die "llvm-profdata is not there: rustup component add llvm-tools"
counts=$PWD/target/profile/counts
rm -rf "$counts"
mkdir -p "$counts"
step "building Coxswain with counters"
program=$(CARGO_TARGET_DIR=target/profile COXSWAIN_COUNT=$counts deploy/image/build.sh)
tests/controlplane/build.sh >/dev/null

# Plays the scenarios $2, and merges what was counted into $counts/$1.profdata.
play() {
    step "playing $2"
    LLVM_PROFILE_FILE=$counts/$1-%m.profraw ONLY=coxswain ROUNDS=1 SCALE=${SCALE:-0.4} COXSWAIN=$program SCENARIOS=$2 \
        cargo bench --profile dev --bench sidebyside
    [ -n "$(find "$counts" -name "$1-*.profraw" -print -quit)" ] || die "nothing was counted of $2"
    "$tool" merge --sparse -o "$counts/$1.profdata" "$counts/$1"-*.profraw
}

# The functions of a profile, what runs most first.
functions() {
    "$tool" show --all-functions --counts "$counts/$1.profdata" | awk '
        /^  [^ ].*:$/ { name = $1; sub(/:$/, "", name); sub(/.*;/, "", name) }
        /^    (Function count|Block counts):/ {
            gsub(/[^0-9]+/, " "); most = 0
            for (at = 1; at <= NF; at++) if ($at + 0 > most) most = $at + 0
            if (most > 0) printf "%.0f %s\n", most, name
        }' | sort --key=1,1nr --key=2 | cut -d" " -f2
}

play rest idle
play work "rollouts,jobs,statefulsets,daemonsets,cleanup,autoscaling,signing,binding,zone,NotReady,200 × 10,garbage,budgets,start"
"$tool" merge --sparse -o deploy/image/coxswain.profdata "$counts/rest.profdata" "$counts/work.profdata"
{ functions rest; functions work; } | awk '!seen[$0]++' | gzip --no-name --best >deploy/image/coxswain.order.gz
step "made $(gzip -dc deploy/image/coxswain.order.gz | wc -l) functions' profile and order in deploy/image"

#!/usr/bin/env bash
# Records the profile with which the released program is compiled and linked: deploy/image/coxswain.profdata has the number of calls of
# each function, and coxswain.order.gz lists the functions that run, those of an idle manager first. A build with counters plays the
# scenarios of the benchmarks, at 40 percent of their size. The script takes an hour on two cores and needs rustup's llvm-tools. Run it
# after changes of code that runs for each object or request. An old profile breaks nothing.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'profile: %s\n' "$*" >&2; exit 1; }
step() { printf 'profile: %s\n' "$*" >&2; }

tool=$(find "$(rustc --print sysroot)/lib/rustlib" -name llvm-profdata -print -quit)
[ -n "$tool" ] || die "llvm-profdata is not installed; run rustup component add llvm-tools"
counts=$PWD/target/profile/counts
rm -rf "$counts"
mkdir -p "$counts"
step "building Coxswain with counters"
program=$(CARGO_TARGET_DIR=target/profile COXSWAIN_COUNT=$counts deploy/image/build.sh)
tests/controlplane/build.sh >/dev/null

# Plays the scenarios $2, and merges the counts into $counts/$1.profdata.
play() {
    step "playing $2"
    LLVM_PROFILE_FILE=$counts/$1-%m.profraw ONLY=coxswain ROUNDS=1 SCALE=${SCALE:-0.4} COXSWAIN=$program SCENARIOS=$2 \
        cargo bench --profile dev --bench sidebyside
    [ -n "$(find "$counts" -name "$1-*.profraw" -print -quit)" ] || die "the scenarios $2 wrote no counts"
    "$tool" merge --sparse -o "$counts/$1.profdata" "$counts/$1"-*.profraw
}

# Prints the functions of a profile, the most frequent one first.
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
step "wrote the profile and the order of $(gzip -dc deploy/image/coxswain.order.gz | wc -l) functions to deploy/image"

#!/usr/bin/env bash
# Makes deploy/image/coxswain.profdata anew, by which the program that ships is compiled: which functions run, and how often, is
# counted while a build for that plays the benchmarks' scenarios, at less than half of their size. Takes an hour on two cores, and
# rustup's llvm-tools. After changes to what runs for each object or request; nothing breaks while it is old.
set -euo pipefail
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
step "playing the scenarios"
tests/controlplane/build.sh >/dev/null
ONLY=coxswain ROUNDS=1 SCALE=${SCALE:-0.4} COXSWAIN=$program \
    SCENARIOS="rollouts,jobs,statefulsets,daemonsets,cleanup,autoscaling,signing,binding,zone,NotReady,200 × 10,garbage,budgets,start" \
    cargo bench --profile dev --bench sidebyside
[ -n "$(find "$counts" -name '*.profraw' -print -quit)" ] || die "nothing was counted in $counts"
"$tool" merge --sparse -o deploy/image/coxswain.profdata "$counts"
step "made deploy/image/coxswain.profdata, $(stat --format=%s deploy/image/coxswain.profdata) bytes"

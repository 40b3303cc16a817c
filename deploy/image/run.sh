#!/usr/bin/env bash
# Runs a program of a root filesystem as a container engine would, but without one and without root: as the user 65532 of a user
# namespace, without capabilities. The program sees only mounted files of the machine, read-only unless the mount ends in :rw.
#   run.sh ROOTFS [--mount FROM:TO[:ro|:rw]]... -- PROGRAM [ARGUMENT]...
# The process ID stays the same, so a signal to this script is a signal to the program. The network is the machine's. The empty directory
# ROOTFS.run remains.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    exec unshare --user --map-root-user --mount --propagation private "$(realpath "${BASH_SOURCE[0]}")" --inside "$@"
fi
shift
rootfs=$(realpath "$1")
shift
stage=$rootfs.run
mkdir -p "$stage"
# A layer in memory adds the mount points, which the image lacks.
mount -t tmpfs memory "$stage"
mkdir "$stage"/{upper,work,root}
mount -t overlay -o "lowerdir=$rootfs,upperdir=$stage/upper,workdir=$stage/work" image "$stage/root"
stage=$stage/root
mkdir -p "$stage"/{proc,run,var}
ln -s /run "$stage/var/run"
mount --rbind /proc "$stage/proc"
while [ "$1" = --mount ]; do
    from=${2%%:*} to=${2#*:} mode=ro
    case $to in *:ro | *:rw) mode=${to##*:} to=${to%:*} ;; esac
    case $to in /var/run/*) to=/run/${to#/var/run/} ;; esac
    if [ -d "$from" ]; then mkdir -p "$stage$to"; else mkdir -p "$stage${to%/*}"; touch "$stage$to"; fi
    mount --rbind "$from" "$stage$to"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$stage$to"
    shift 2
done
[ "$1" = -- ] && shift
mount -o remount,bind,ro "$stage"
exec unshare --user --map-user=65532 --map-group=65532 --root="$stage" --wd=/ "$@"

#!/usr/bin/env bash
# Assembles the root filesystem of the image in the new directory $2 from the program $1: the program, the shared libraries
# that it is linked with, the system's certificate authorities, and who it runs as. There is no shell in it and nothing
# else to run. SYSROOT is where the libraries of another architecture are, if not where Debian's cross compilers have them. Equal inputs give
# equal files, times included (SOURCE_DATE_EPOCH, else that of the last commit).
set -euo pipefail
export LC_ALL=C
program=$(realpath "$1")
root=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
die() { printf 'rootfs: %s\n' "$*" >&2; exit 1; }

[ ! -e "$root" ] || die "$root is there already"
umask 022
mkdir -p "$root"/{etc/ssl/certs,usr/local/bin,usr/share/doc/coxswain}

install -m 755 "$program" "$root/usr/local/bin/coxswain"
# The plugin of kubectl is the same program under another name.
ln -s coxswain "$root/usr/local/bin/kubectl-coxswain"
install -m 644 LICENSE "$root/usr/share/doc/coxswain/LICENSE"

# Where a library of this name is, for the program's architecture.
find_library() {
    local directory
    for directory in "${SYSROOT:-}"/{lib,lib64,usr/lib,usr/lib64} "${SYSROOT:-}"/{lib,usr/lib}/"$architecture-linux-gnu"; do
        [ -e "$directory/$1" ] && realpath "$directory/$1" && return
    done
    die "there is no $1 for $architecture"
}

# The architecture as the toolchain calls it, and the loader, whose path is in the program.
case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
    *X86-64*) architecture=x86_64 ;;
    AArch64*) architecture=aarch64 ;;
    *) die "$program is for no architecture that images are made for" ;;
esac
[ "$architecture" = "$(uname -m)" ] || SYSROOT=${SYSROOT:-/usr/$architecture-linux-gnu}
loader=$(readelf -l "$program" | sed -n 's/.*Requesting program interpreter: \(.*\)]/\1/p')
if [ -n "$loader" ]; then
    mkdir -p "$root/lib/$architecture-linux-gnu" "$root${loader%/*}"
    install -m 755 "$(find_library "${loader##*/}")" "$root$loader"
    # Libraries may need more libraries.
    wanted=("$program")
    while [ ${#wanted[@]} -gt 0 ]; do
        needed=$(readelf -d "${wanted[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
        wanted=()
        for name in $needed; do
            [ "$name" != "${loader##*/}" ] && [ ! -e "$root/lib/$architecture-linux-gnu/$name" ] || continue
            install -m 644 "$(find_library "$name")" "$root/lib/$architecture-linux-gnu/$name"
            wanted+=("$root/lib/$architecture-linux-gnu/$name")
        done
    done
fi

printf 'root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n' >"$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
[ -e /etc/ssl/certs/ca-certificates.crt ] || die "the package ca-certificates is not installed"
install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
[ -z "${SBOM:-}" ] || install -m 644 "$SBOM" "$root/usr/share/doc/coxswain/sbom.cdx.json"

find "$root" -exec touch --no-dereference --date="@$epoch" {} +

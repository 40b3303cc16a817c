#!/usr/bin/env bash
# Assembles the root filesystem of the image in the new directory $2 from the program $1: the program, the shared libraries
# that it is linked with, the system's certificate authorities, and who it runs as. There is no shell in it and nothing
# else to run. SYSROOT is where the libraries of another architecture are, if not where Debian's cross compilers have them. Equal inputs give
# equal files, times included (SOURCE_DATE_EPOCH, else that of the last commit).
#
# With SBOM, a list of the program's parts, each file of the image belongs to a component of that list, with its version and hash: to the
# Debian package that it is taken from, or to coxswain-image. For scanners, the packages are also in /var/lib/dpkg/status.d. The build
# fails if a file has no component, or differs from the file in its package.
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

# Paths in the image by Debian package, and by `ours` for the files that this script makes.
declare -A files_of=([ours]="usr/local/bin/coxswain usr/local/bin/kubectl-coxswain usr/share/doc/coxswain/LICENSE \
    etc/group etc/nsswitch.conf etc/passwd ")
# Fails unless the file $2 of this machine is as the package $1 installed it.
verify() {
    local sums
    sums=$(dpkg-query --control-show "$1" md5sums) || die "the package $1 has no checksums"
    grep -qF "$(md5sum <"$2" | cut -d' ' -f1)  " <<<"$sums" || die "$2 differs from the file in the package $1"
}
# Notes that the file $2 of this machine is $1 in the image.
note_origin() {
    local path package=
    [ -n "${SBOM:-}" ] || return 0
    # With merged directories a package lists a file without /usr.
    for path in "$2" "${2#/usr}" "$(realpath "$2")"; do
        package=$(dpkg-query -S "$path" 2>/dev/null | sed -n '1s/: \/.*//p') || true
        [ -z "$package" ] || break
    done
    [ -n "$package" ] || die "$2 is of no Debian package, so nobody could tell which version the image has"
    verify "$package" "$2"
    files_of[$package]+="$1 "
}

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
    library=$(find_library "${loader##*/}")
    install -m 755 "$library" "$root$loader"
    note_origin "${loader#/}" "$library"
    # Libraries may need more libraries.
    wanted=("$program")
    while [ ${#wanted[@]} -gt 0 ]; do
        needed=$(readelf -d "${wanted[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
        wanted=()
        for name in $needed; do
            [ "$name" != "${loader##*/}" ] && [ ! -e "$root/lib/$architecture-linux-gnu/$name" ] || continue
            library=$(find_library "$name")
            install -m 644 "$library" "$root/lib/$architecture-linux-gnu/$name"
            note_origin "lib/$architecture-linux-gnu/$name" "$library"
            wanted+=("$root/lib/$architecture-linux-gnu/$name")
        done
    done
fi

printf 'root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n' >"$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
# The authorities of the package, without those that the owner of this machine has added to its bundle.
authorities=$(dpkg-query -L ca-certificates | grep '/mozilla/.*\.crt$' | sort) || die "the package ca-certificates is not installed"
for authority in $authorities; do
    cat "$authority"
done >"$root/etc/ssl/certs/ca-certificates.crt"

# A component for each package, and one for the rest, with their files.
components() {
    local package type name version arch purl path separator
    for package in $(printf '%s\n' "${!files_of[@]}" | sort); do
        if [ "$package" = ours ]; then
            type=application name=coxswain-image
            version=$(sed -n '/^\[workspace.package]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
            purl="pkg:generic/$name@$version"
        else
            type=library
            IFS=' ' read -r name version arch <<<"$(dpkg-query -W -f '${Package} ${Version} ${Architecture}\n' "$package")"
            purl="pkg:deb/debian/$name@$(sed 's/:/%3A/g; s/+/%2B/g; s/~/%7E/g' <<<"$version")?arch=$arch&distro=debian-$(. /usr/lib/os-release && echo "${VERSION_ID:-}")"
        fi
        printf '    {\n      "type": "%s",\n      "bom-ref": "%s",\n      "name": "%s",\n      "version": "%s",\n      "purl": "%s",\n' \
            "$type" "$purl" "$name" "$version" "$purl"
        printf '      "components": ['
        separator=
        for path in ${files_of[$package]}; do
            printf '%s\n        { "type": "file", "name": "%s", "hashes": [{ "alg": "SHA-256", "content": "%s" }] }' \
                "$separator" "$path" "$(sha256sum "$root/$path" | cut -d' ' -f1)"
            separator=,
        done
        printf '\n      ]\n    },\n'
    done
}

if [ -n "${SBOM:-}" ]; then
    # Made of files of the package, so the package does not list it.
    sums=$(dpkg-query --control-show ca-certificates md5sums | grep '/mozilla/')
    (cd / && md5sum --check --quiet <<<"$sums") || die "authorities differ from those in the package ca-certificates"
    files_of[ca-certificates]+="etc/ssl/certs/ca-certificates.crt "
    install -m 644 /usr/lib/os-release "$root/etc/os-release"
    note_origin etc/os-release /usr/lib/os-release
    mkdir -p "$root/var/lib/dpkg/status.d"
    for package in $(printf '%s\n' "${!files_of[@]}" | sort); do
        [ "$package" != ours ] || continue
        status=var/lib/dpkg/status.d/${package%%:*}
        dpkg-query -s "$package" >"$root/$status" || die "there is no package $package"
        chmod 644 "$root/$status"
        files_of[ours]+="$status "
    done
    list=usr/share/doc/coxswain/sbom.cdx.json
    described=" ${files_of[*]} "
    while IFS= read -r path; do
        case $described in *[[:space:]]"$path"[[:space:]]*) ;; *) die "$path belongs to no component of the SBOM" ;; esac
    done < <(cd "$root" && find . ! -type d ! -path "./$list" -printf '%P\n')
    list=$root/$list
    sed '/^  "components": \[$/r '<(components) "$SBOM" >"$list"
    chmod 644 "$list"
    grep -q '"purl": "pkg:deb/debian/' "$list" || die "$SBOM has no list of components"
fi

find "$root" -exec touch --no-dereference --date="@$epoch" {} +

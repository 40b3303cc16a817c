#!/usr/bin/env bash
# Assembles the root filesystem of the image in the new directory $2 from the program $1: the program, the shared libraries
# that it is linked with, the system's CA certificates, and its user. It has no shell and no other program. Equal inputs give equal
# files, times included (SOURCE_DATE_EPOCH [the time of the last commit]).
#
# The libraries are those of this machine if the program is for its architecture. Otherwise they are taken from Debian's packages for the
# program's architecture, never from a cross compiler: packages.sh downloads these packages, unless PACKAGES names a directory with them.
# If PACKAGES is set, the libraries for the machine's own architecture are taken from it, too.
#
# With SBOM, a list of the program's parts, each file of the image belongs to a component of that list, with its version and hash: to the
# Debian package that it is taken from, or to coxswain-image. For scanners, the packages are also in /var/lib/dpkg/status.d. The build
# fails if a file has no component, or differs from the file in its package.
set -euo pipefail
export LC_ALL=C
program=$(realpath "$1")
root=$2
PACKAGES=${PACKAGES:+$(realpath -m "$PACKAGES")}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
die() { printf 'rootfs: %s\n' "$*" >&2; exit 1; }
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT

[ ! -e "$root" ] || die "$root already exists"
umask 022
mkdir -p "$root"/{etc/ssl/certs,usr/local/bin,usr/share/doc/coxswain}

install -m 755 "$program" "$root/usr/local/bin/coxswain"
# The plugin of kubectl is the same program under another name.
ln -s coxswain "$root/usr/local/bin/kubectl-coxswain"
install -m 644 LICENSE "$root/usr/share/doc/coxswain/LICENSE"

# Paths in the image by Debian package, and by `ours` for the files that this script makes.
declare -A files_of=([ours]="usr/local/bin/coxswain usr/local/bin/kubectl-coxswain usr/share/doc/coxswain/LICENSE \
    etc/group etc/nsswitch.conf etc/passwd ")
# Prints the architecture of a program or a library, as the toolchain calls it.
architecture_of() {
    case $(readelf -h "$1" 2>/dev/null | sed -n 's/ *Machine: *//p') in
        *X86-64*) printf 'x86_64' ;;
        AArch64*) printf 'aarch64' ;;
        *) printf 'another architecture' ;;
    esac
}
architecture=$(architecture_of "$program")
case $architecture in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) die "unsupported architecture of $program; use amd64 or arm64" ;;
esac

# Unpacks the packages for the program's architecture, each to $work/packages/NAME:ARCHITECTURE next to its archive. Without such packages,
# installed ones are used.
packages=
if [ -n "$PACKAGES" ] || [ "$architecture" != "$(uname -m)" ]; then
    packages=$work/packages
    mkdir "$packages" "$work/archives"
    if [ -z "$PACKAGES" ]; then
        PACKAGES=$work/downloads
        deploy/image/packages.sh "$debian" "$PACKAGES" || die "no packages for $debian: set PACKAGES to a directory that has them"
    fi
    for archive in "$PACKAGES"/*.deb; do
        [ -e "$archive" ] || die "no package in $PACKAGES: run deploy/image/packages.sh $debian $PACKAGES"
        name=$(dpkg-deb --show --showformat '${Package}:${Architecture}' "$archive")
        [ "${name#*:}" = "$debian" ] || die "$archive is a package for ${name#*:}, not for $debian"
        [ ! -e "$packages/$name" ] || die "several versions of $name in $PACKAGES"
        dpkg-deb --extract "$archive" "$packages/$name"
        cp "$archive" "$work/archives/$name.deb"
    done
fi

# Prints the archive of the package $1; fails if the package is an installed one.
archive_of() {
    [ -n "$packages" ] && [ -e "$work/archives/$1.deb" ] && printf '%s\n' "$work/archives/$1.deb"
}
# Prints the fields $2 of the package $1.
package_fields() {
    local archive
    if archive=$(archive_of "$1"); then dpkg-deb --show --showformat "$2" "$archive"; else dpkg-query -W -f "$2" "$1"; fi
}
# Prints the record of the package $1, as in the database of dpkg.
package_record() {
    local archive
    if archive=$(archive_of "$1"); then
        dpkg-deb --field "$archive" | sed '/^Package:/a Status: install ok installed'
    else
        dpkg-query -s "$1"
    fi
}
# Fails unless the file $2 of this machine is as the package $1 installed it.
verify() {
    local sums
    sums=$(dpkg-query --control-show "$1" md5sums) || die "the package $1 has no checksums"
    grep -qF "$(md5sum <"$2" | cut -d' ' -f1)  " <<<"$sums" || die "$2 differs from the file in the package $1"
}
# Notes that the file $2 is $1 in the image.
note_origin() {
    local path package=
    [ -n "${SBOM:-}" ] || return 0
    case $2 in
        "$work"/packages/*)
            package=${2#"$work/packages/"} package=${package%%/*}
            ;;
        *)
            # With merged directories a package lists a file without /usr.
            for path in "$2" "${2#/usr}" "$(realpath "$2")"; do
                package=$(dpkg-query -S "$path" 2>/dev/null | sed -n '1s/: \/.*//p') || true
                [ -z "$package" ] || break
            done
            [ -n "$package" ] || die "$2 belongs to no Debian package, so its version is unknown"
            verify "$package" "$2"
            ;;
    esac
    files_of[$package]+="$1 "
}

# Prints the path of the library $1 for the program's architecture.
find_library() {
    local place directory library
    for place in "${places[@]}"; do
        for directory in {lib,lib64,usr/lib,usr/lib64} {lib,usr/lib}/"$architecture-linux-gnu"; do
            [ -e "$place/$directory/$1" ] || continue
            library=$(realpath "$place/$directory/$1")
            # An absolute link in a package leads to a file of this machine.
            case $library in "$place"/*) ;; *) continue ;; esac
            [ "$(architecture_of "$library")" = "$architecture" ] || continue
            printf '%s\n' "$library"
            return
        done
    done
    if [ -n "$packages" ]; then
        die "no package in $PACKAGES has $1 for $debian: deploy/image/packages.sh $debian DIRECTORY downloads the packages"
    fi
    die "$1 is missing for $debian"
}
places=("")
[ -z "$packages" ] || places=("$packages"/*)
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
# The CA certificates of the package, without those that the administrator of this machine has added.
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
            IFS=' ' read -r name version arch <<<"$(package_fields "$package" '${Package} ${Version} ${Architecture}\n')"
            purl="pkg:deb/debian/$name@$(sed 's/:/%3A/g; s/+/%2B/g; s/~/%7E/g' <<<"$version")?arch=$arch&distro=debian-$(. "$root/etc/os-release" && echo "${VERSION_ID:-}")"
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
    # Built from files of the package, so the package does not list this file.
    sums=$(dpkg-query --control-show ca-certificates md5sums | grep '/mozilla/')
    (cd / && md5sum --check --quiet <<<"$sums") || die "the CA certificates differ from those in the package ca-certificates"
    files_of[ca-certificates]+="etc/ssl/certs/ca-certificates.crt "
    release=/usr/lib/os-release
    [ -z "$packages" ] || release=$packages/base-files:$debian/usr/lib/os-release
    [ -e "$release" ] || die "no package base-files for $debian in $PACKAGES: deploy/image/packages.sh $debian DIRECTORY downloads the packages"
    # The CA certificates are those of this machine.
    [ "$(. "$release" && echo "${VERSION_ID:-}")" = "$(. /usr/lib/os-release && echo "${VERSION_ID:-}")" ] ||
        die "the packages in $PACKAGES belong to a different Debian release than this machine"
    install -m 644 "$release" "$root/etc/os-release"
    note_origin etc/os-release "$release"
    mkdir -p "$root/var/lib/dpkg/status.d"
    for package in $(printf '%s\n' "${!files_of[@]}" | sort); do
        [ "$package" != ours ] || continue
        status=var/lib/dpkg/status.d/${package%%:*}
        package_record "$package" >"$root/$status" || die "the package $package does not exist"
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

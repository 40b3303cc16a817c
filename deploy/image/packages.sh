#!/usr/bin/env bash
# Downloads Debian's packages of the files that rootfs.sh needs for the architecture $1 (amd64 or arm64) into the new directory $2. apt-get
# verifies them with this machine's sources and keys. The script installs nothing and needs neither dpkg --add-architecture nor root.
set -euo pipefail
export LC_ALL=C
debian=$1
to=$(realpath -m "$2")
packages=(base-files libc6 libgcc-s1)
die() { printf 'packages: %s\n' "$*" >&2; exit 1; }
command -v apt-get >/dev/null || die "apt-get is needed to download ${packages[*]} for $debian"
[ ! -e "$to" ] || [ -z "$(ls -A "$to")" ] || die "$to is not empty"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$to" "$work"/{lists,cache}/partial
touch "$work/status"
apt() {
    apt-get --quiet --quiet -o "APT::Architecture=$debian" -o "APT::Architectures=$debian" -o APT::Sandbox::User= \
        -o "Dir::State=$work" -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" "$@" >&2
}
apt update || die "apt-get could not read the lists of packages for $debian"
cd "$to"
for package in "${packages[@]}"; do
    apt download "$package:$debian" || die "apt-get could not download $package:$debian"
done

#!/usr/bin/env bash
# Builds the release in OUT [target/dist-VERSION]: the program as an archive, with the plugin of kubectl and its krew manifest, the clients
# (sources, a wheel, an npm package, a zip for Go's module proxies), the chart, the manifests, and SHA256SUMS, which is signed if
# SIGNING_KEY names a private key (scripts/sign.sh). Equal sources give equal bytes. ARCH is amd64, arm64 or both, separated by a space.
# COXSWAIN names built programs.
set -euo pipefail
export LC_ALL=C TZ=UTC
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'dist: %s\n' "$*" >&2; exit 1; }

# Upper limit of the stripped program. Functions that are optimized for speed are larger.
limit=$((34 << 20))
version=$(sed -n '/^\[workspace.package]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=$(realpath -m "${OUT:-target/dist-$version}")
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
programs=${COXSWAIN:-}
if [ -z "$programs" ]; then
    for arch in ${ARCH:-"$(uname -m)"}; do
        built=$(deploy/image/build.sh "$arch")
        programs+=" $built"
    done
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
scripts/empty.sh "$out" .coxswain-dist
touch "$out/.coxswain-dist"

# Packs the directory $1 of $work into the archive $2, independent of user and time.
pack() {
    tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --format=ustar "$1" |
        gzip --no-name --best >"$out/$2"
}

# Writes the archives of the program $1.
release() {
    local program=$1 arch machine strip=strip size name
    case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
        *X86-64*) arch=amd64 machine=x86_64 ;;
        AArch64*) arch=arm64 machine=aarch64 ;;
        *) die "unsupported architecture of $program; use amd64 or arm64" ;;
    esac
    [ "$machine" = "$(uname -m)" ] || strip=$machine-linux-gnu-strip
    "$strip" --strip-all -o "$work/stripped" "$program"
    size=$(stat --format=%s "$work/stripped")
    printf 'dist: the program for %s is %d.%d MiB stripped\n' "$arch" $((size >> 20)) $(((size & 1048575) * 10 >> 20)) >&2
    # A debug build, as in tests, is larger.
    [ "$size" -le "$limit" ] || [ -n "${COXSWAIN:-}" ] || die "the stripped program is larger than $((limit >> 20)) MiB"

    name=coxswain-$version-linux-$arch
    mkdir "$work/$name"
    install -m 755 "$program" "$work/$name/coxswain"
    ln -s coxswain "$work/$name/kubectl-coxswain"
    install -m 755 deploy/krew/kubectl_complete-coxswain "$work/$name/"
    install -m 644 LICENSE README.md CHANGELOG.md "$work/$name/"
    deploy/image/sbom.sh "$work/$name/sbom.cdx.json" "$program"
    pack "$name" "$name.tar.gz"

    # krew installs single files; the plugin is the program itself.
    name=kubectl-$name
    mkdir "$work/$name"
    install -m 755 "$program" "$work/$name/kubectl-coxswain"
    install -m 755 deploy/krew/kubectl_complete-coxswain "$work/$name/"
    install -m 644 LICENSE "$work/$name/"
    pack "$name" "$name.tar.gz"
}

for program in $programs; do
    release "$program"
done
deploy/krew/manifest.sh "$version" "$out"/kubectl-coxswain-*.tar.gz >"$out/coxswain.krew.yaml"

for language in go python typescript; do
    name=coxswain-client-$language-$version
    mkdir "$work/$name"
    git ls-files -z "clients/$language" | xargs -0 cp --parents --target-directory="$work/$name"
    mv "$work/$name/clients/$language"/* "$work/$name/"
    rm -r "$work/$name/clients"
    cp LICENSE "$work/$name/"
    pack "$name" "$name.tar.gz"
done

export SOURCE_DATE_EPOCH=$epoch
python=$(clients/python/environment.sh build-requirements.txt)
"$python" -m pip wheel --quiet --disable-pip-version-check --no-index --no-build-isolation --no-deps --wheel-dir "$out" "$work/coxswain-client-python-$version"
[ -e "$out/coxswain_admin-$version-py3-none-any.whl" ] || die "the wheel does not have the version $version"
scripts/clients.sh packages
ln -s "$PWD/clients/typescript/node_modules" "$work/coxswain-client-typescript-$version/node_modules"
(cd "$work/coxswain-client-typescript-$version" && npm pack --silent --pack-destination "$out" >&2)
[ -e "$out/coxswain-dev-admin-$version.tgz" ] || die "the npm package does not have the version $version"
# A directory with its own go.mod is another module.
(cd "$work/coxswain-client-go-$version" && "$python" - "$out/coxswain-client-go-$version.zip" "$version" <<'PYTHON'
import pathlib, sys, time, os, zipfile

path, version = sys.argv[1:]
module = pathlib.Path("go.mod").read_text().split()[1]
foreign = [found.parent for found in pathlib.Path().glob("*/**/go.mod")]
files = [path for path in pathlib.Path().rglob("*") if path.is_file() and not any(each in path.parents for each in foreign)]
made = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for file in sorted(files):
        archive.writestr(zipfile.ZipInfo(f"{module}@v{version}/{file}", made), file.read_bytes(), zipfile.ZIP_DEFLATED)
PYTHON
)

cp -r deploy/helm/coxswain "$work/coxswain"
pack coxswain "coxswain-$version.tgz"
mkdir "$work/manifests"
cp -r deploy/kustomize deploy/prometheus deploy/grafana "$work/manifests/"
# flags.yaml belongs to one cluster.
rm -f "$work/manifests/kustomize/overlays/cluster/flags.yaml"
pack manifests "coxswain-manifests-$version.tar.gz"

(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
[ -z "${SIGNING_KEY:-}" ] || scripts/sign.sh "$out/SHA256SUMS"
printf '%s\n' "$out"

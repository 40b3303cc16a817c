#!/usr/bin/env bash
# Builds a tool that tests stand on, from the version that is pinned, and prints where it is: `helm`, `umoci`, `kubeadm`,
# `cargo-cyclonedx`, `mdbook`; `crds` is the directory of the Prometheus Operator's custom resource definitions. Kept outside of the
# checkout, under ${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/coxswain}/tools.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../tests/deploying"
name=$1
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools"
say() { printf 'tool: %s\n' "$*" >&2; }
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off

case $name in
    helm)
        package=helm.sh/helm/v3/cmd/helm
        # What it takes for the version of a cluster that it does not ask.
        IFS=. read -r major minor _ <<<"$(cd helm && go list -m -f '{{.Version}}' k8s.io/client-go)"
        flags="-s -w -X helm.sh/helm/v3/internal/version.version=$(cd helm && go list -m -f '{{.Version}}' helm.sh/helm/v3)"
        for part in chartutil lint/rules; do
            flags+=" -X helm.sh/helm/v3/pkg/$part.k8sVersionMajor=$((${major#v} + 1)) -X helm.sh/helm/v3/pkg/$part.k8sVersionMinor=$minor"
        done
        ;;
    umoci)
        package=github.com/opencontainers/umoci/cmd/umoci
        flags="-s -w"
        ;;
    kubeadm)
        package=k8s.io/kubernetes/cmd/kubeadm
        # By its own version it chooses the versions of a cluster that it takes.
        version=$(cd kubeadm && go list -m -f '{{.Version}}' k8s.io/kubernetes)
        IFS=. read -r major minor _ <<<"${version#v}"
        flags="-s -w"
        for part in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
            flags+=" -X $part.gitVersion=$version -X $part.gitMajor=$major -X $part.gitMinor=$minor"
        done
        ;;
    cargo-cyclonedx | mdbook)
        declare -A versions=([cargo-cyclonedx]=0.5.9 [mdbook]=0.5.4)
        version=${versions[$name]}
        if [ ! -x "$tools/$name-$version/bin/$name" ]; then
            say "installing $name $version (once)"
            cargo install --quiet --locked --root "$tools/$name-$version" --version "$version" "$name" >&2
        fi
        echo "$tools/$name-$version/bin/$name"
        exit
        ;;
    crds)
        module=github.com/prometheus-operator/prometheus-operator
        (cd crds && go mod download "$module")
        printf '%s/example/prometheus-operator-crd\n' "$(cd crds && go list -m -f '{{.Dir}}' "$module")"
        exit
        ;;
    *)
        say "there is no tool $name"
        exit 2
        ;;
esac
hash=$({ go env GOVERSION GOOS GOARCH; cat "$name/go.mod" "$name/go.sum"; printf '%s\n' "$flags"; } | sha256sum | cut -c1-16)
binary=$tools/$name-$hash/$name
if [ ! -x "$binary" ]; then
    mkdir -p "${binary%/*}"
    exec 9>"$tools/$name.lock"
    flock 9
    [ -x "$binary" ] || {
        say "building $name (once)"
        (cd "$name" && go build -trimpath -ldflags "$flags" -o "$binary.tmp" "$package" >&2 9>&-)
        mv "$binary.tmp" "$binary"
    }
fi
echo "$binary"

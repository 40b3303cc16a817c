#!/usr/bin/env bash
# Builds a tool of the tests or of `make lint` at its pinned version, and prints the path of the program: `helm`, `umoci`, `kubeadm`,
# `cargo-cyclonedx`, `mdbook`, `typos`, `vale`. `crds` is the directory of the Prometheus Operator's custom resource definitions. The tools are
# cached outside of the checkout, under ${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/coxswain}/tools.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../tests/deploying"
name=${1:?usage: scripts/tool.sh NAME}
tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools"
say() { printf 'tool: %s\n' "$*" >&2; }
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off

case $name in
    helm)
        package=helm.sh/helm/v3/cmd/helm
        # Helm renders for this version of Kubernetes when it does not connect to a cluster.
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
        # kubeadm derives the supported versions of a cluster from its own version.
        version=$(cd kubeadm && go list -m -f '{{.Version}}' k8s.io/kubernetes)
        IFS=. read -r major minor _ <<<"${version#v}"
        flags="-s -w"
        for part in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
            flags+=" -X $part.gitVersion=$version -X $part.gitMajor=$major -X $part.gitMinor=$minor"
        done
        ;;
    vale)
        # The pins are next to those of the other tools of `make lint`.
        cd ../../scripts
        package=github.com/vale-cli/vale/v3/cmd/vale
        flags="-s -w -X main.version=$(cd vale && go list -m -f '{{.Version}}' github.com/vale-cli/vale/v3)"
        # Vale parses source code with tree-sitter, in C. Coxswain has only its prose checked, so the parsers need no optimization, which
        # would take minutes.
        export CGO_ENABLED=1 CGO_CFLAGS="-O0 -w"
        ;;
    cargo-cyclonedx | mdbook | typos)
        declare -A crates=([typos]=typos-cli) versions=([cargo-cyclonedx]=0.5.9 [mdbook]=0.5.4 [typos]=1.52.0)
        crate=${crates[$name]:-$name} version=${versions[$name]}
        if [ ! -x "$tools/$name-$version/bin/$name" ]; then
            say "installing $crate $version (once)"
            cargo install --quiet --locked --root "$tools/$name-$version" --version "$version" "$crate" >&2
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
        say "unknown tool $name; use helm, umoci, kubeadm, cargo-cyclonedx, mdbook, typos, vale or crds"
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

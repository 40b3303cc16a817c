#!/usr/bin/env bash
# Builds the control plane that Coxswain is developed and tested against, from the versions pinned in go.mod.
#
# The script prints progress to stderr, and the directory of the binaries as the last line of stdout: etcd, kube-apiserver,
# kube-scheduler, kube-controller-manager, kubectl, kwok, grpcurl, collector (an OpenTelemetry Collector), prometheus and promtool, and
# the launcher, controlplane. The collector and Prometheus have separate modules, so that their pins do not conflict with those of
# Kubernetes. With COXSWAIN_FULL=1 csi-provisioner, csi-attacher, csi-resizer and csi-driver are built, too; otherwise their links are
# dangling. The same parent directory has `stages` (kwok's stage files) and `protos` (the .proto files of the Kubernetes API).
#
# The results are cached outside of the checkout, under ${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/coxswain}/controlplane:
#   components-HASH/   the pinned binaries; HASH covers go.mod, go.sum, this recipe, the Go version and the platform
#   collector-HASH/    the collector; HASH covers collector/, the recipe, the Go version and the platform
#   prometheus-HASH/   Prometheus; likewise
#   csi-HASH/          the CSI programs; likewise
#   HASH/              the launcher, with links to its components; HASH also covers the launcher's sources
# Two copies may run at once. After an interruption, the next run continues with the next component. No half-written file remains.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")"

COMPONENTS=(
    "etcd go.etcd.io/etcd/server/v3"
    "kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver"
    "kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler"
    "kwok sigs.k8s.io/kwok/cmd/kwok"
    "kubectl k8s.io/kubernetes/cmd/kubectl"
    "grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl"
    "kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager"
)
PROTO_MODULES=(k8s.io/api k8s.io/apimachinery k8s.io/apiextensions-apiserver k8s.io/kube-aggregator)
HEARTBEAT_SECONDS=15

say() { printf 'controlplane: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

for tool in go flock sha256sum; do
    command -v "$tool" >/dev/null || die "$tool is not on the PATH; install it to build the control plane"
done
[ "$(go env GOOS)" = linux ] || die "unsupported operating system; the control plane runs only on Linux, because its launcher uses prctl"

# The children end with this script.
trap 'children=$(jobs -p); [ -z "$children" ] || kill $children 2>/dev/null || true' EXIT

# With CGO and version stamps of the machine, the result would depend on more than the hash covers.
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off

module_version() { go list -m -f '{{.Version}}' "$1"; }
module_dir() { go list -m -f '{{.Dir}}' "$1"; }

# Prints the linker flags that stamp a component with its version, as in its release build.
linker_flags() {
    local version major minor package flags="-s -w"
    version=$(module_version k8s.io/kubernetes)
    IFS=. read -r major minor _ <<<"${version#v}"
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
        flags+=" -X $package.gitTreeState=archive -X $package.gitCommit="
    done
    flags+=" -X main.version=$(module_version github.com/fullstorydev/grpcurl)"
    printf '%s' "$flags"
}

# Prints the progress of a long build until this script ends. $1 component, $2 its log, $3 its start.
# The sleep may outlive its parent by some seconds, so it must not hold the caller's pipes.
heartbeat() {
    local downloads
    while sleep "$HEARTBEAT_SECONDS" >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        downloads=$(grep -c '^go: downloading' "$2" || true)
        say "  $1: $downloads modules downloaded, $(($(wc -l <"$2") - downloads)) packages compiled, $((SECONDS - $3)) s"
    done
}

# Builds $2 as $1/bin/NAME by way of $3. $4 is its place in the list. The compiler runs in the background so that a signal
# takes effect at once. Neither the compiler nor the heartbeat holds the lock, which must end with this script.
build_component() {
    local out=$1 name package temporary=$3 place=$4 began=$SECONDS log beat compiler status=0
    read -r name package <<<"$2"
    [ -x "$out/bin/$name" ] && return
    say "[$place/${#COMPONENTS[@]}] building $name $(version_of "$package")"
    log="$temporary/$name.log"
    : >"$log"
    heartbeat "$name" "$log" "$began" 9>&- &
    beat=$!
    go build -v -trimpath -ldflags "$(linker_flags)" -o "$temporary/$name" "$package" 2>"$log" 9>&- &
    compiler=$!
    wait "$compiler" || status=$?
    kill "$beat" 2>/dev/null || true
    wait "$beat" 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        tail -n 30 "$log" >&2
        die "$name could not be built"
    fi
    mv "$temporary/$name" "$out/bin/$name"
    say "[$place/${#COMPONENTS[@]}] $name built in $((SECONDS - began)) s"
}

version_of() { go list -f '{{with .Module}}{{.Version}}{{end}}' "$1"; }

# Copies kwok's stage files from its module to $1/stages/SET/*.yaml by way of $2.
copy_stages() {
    local from set stage
    [ -d "$1/stages" ] && return
    from=$(module_dir sigs.k8s.io/kwok)/kustomize/stage
    for set in node/fast node/heartbeat-with-lease node/chaos pod/fast pod/general pod/chaos; do
        mkdir -p "$2/stages/$set"
        for stage in "$from/$set"/*.yaml; do
            [ "${stage##*/}" = kustomization.yaml ] || install -m 644 "$stage" "$2/stages/$set/"
        done
    done
    mv "$2/stages" "$1/stages"
}

# Copies the API's .proto files to $1/protos, laid out by import path, by way of $2.
copy_protos() {
    local module from path
    [ -d "$1/protos" ] && return
    for module in "${PROTO_MODULES[@]}"; do
        from=$(module_dir "$module")
        while IFS= read -r path; do
            install -D -m 644 "$from/$path" "$2/protos/$module/$path"
        done < <(cd "$from" && find . -name generated.proto -printf '%P\n')
    done
    mv "$2/protos" "$1/protos"
}

# Builds all pinned components into $1. Temporary files have a separate directory, because a killed build may still write to its
# files.
build_components() {
    local out=$1 temporary=$1/tmp.$$ place=0 component began=$SECONDS
    rm -rf "$out"/tmp.*
    mkdir -p "$out/bin" "$temporary"
    for component in "${COMPONENTS[@]}"; do
        place=$((place + 1))
        build_component "$out" "$component" "$temporary" "$place"
    done
    copy_stages "$out" "$temporary"
    copy_protos "$out" "$temporary"
    rm -rf "$temporary"
    touch "$out/complete"
    say "components ready after $((SECONDS - began)) s"
}

# Builds the collector into $1.
build_collector() {
    local out=$1 began=$SECONDS
    say "building the collector"
    mkdir -p "$out/bin"
    (cd collector && go build -trimpath -ldflags "-s -w" -o "$out/bin/collector.tmp" . 9>&-)
    mv "$out/bin/collector.tmp" "$out/bin/collector"
    say "collector built in $((SECONDS - began)) s"
}

# Builds Prometheus and promtool into $1, without discovery in clouds and without the web interface. It runs after the components,
# because its go.mod shares their versions where possible, so that shared packages are compiled once.
build_prometheus() {
    local out=$1 began=$SECONDS version path=github.com/prometheus
    say "building prometheus and promtool (first time: some 3 minutes on 2 cores)"
    mkdir -p "$out/bin" "$out/tmp"
    (
        cd prometheus
        version=$(go list -m -f '{{.Version}}' $path/prometheus)
        go build -trimpath -tags remove_all_sd -ldflags "-s -w -X $path/common/version.Version=$version" -o "$out/tmp/" \
            $path/prometheus/cmd/prometheus $path/prometheus/cmd/promtool 9>&-
    )
    mv "$out"/tmp/* "$out/bin/"
    rmdir "$out/tmp"
    say "prometheus and promtool built in $((SECONDS - began)) s"
}

# Builds the sidecars of a CSI driver, and a driver, into $1. Most of their dependencies are already compiled.
build_csi() {
    local out=$1 began=$SECONDS path=github.com/kubernetes-csi/external name
    say "building the CSI sidecars and a driver (first time: some 2 minutes on 2 cores)"
    mkdir -p "$out/tmp" "$out/bin"
    (
        cd csi
        for name in provisioner/v6 attacher/v4 resizer/v2; do
            # The names that they report to the API server and their users.
            go build -trimpath -ldflags "-s -w -X main.version=$(go list -m -f '{{.Version}}' "$path-$name")" \
                -o "$out/tmp/" "$path-$name/cmd/csi-${name%/*}" 9>&-
        done
        go build -trimpath -ldflags "-s -w" -o "$out/tmp/csi-driver" . 9>&-
    )
    mv "$out"/tmp/* "$out/bin/"
    rmdir "$out/tmp"
    say "the CSI sidecars and a driver built in $((SECONDS - began)) s"
}

# Builds the launcher into $1 with links to the components in the directory $2, the collector in $3, Prometheus in $4 and the CSI
# programs in $5, which may not exist.
build_launcher() {
    local out=$1 components=$2 collector=$3 prometheus=$4 csi=$5 component name
    rm -rf "${out%/*}"/*.tmp "$out" # a failed build leaves its .tmp
    mkdir -p "$out.tmp/bin"
    go build -trimpath -o "$out.tmp/bin/controlplane" ./cmd/controlplane 9>&-
    for component in "${COMPONENTS[@]}"; do
        name=${component%% *}
        ln -s "../../$components/bin/$name" "$out.tmp/bin/$name"
    done
    ln -s "../../$collector/bin/collector" "$out.tmp/bin/collector"
    for name in prometheus promtool; do
        ln -s "../../$prometheus/bin/$name" "$out.tmp/bin/$name"
    done
    for name in provisioner attacher resizer driver; do
        ln -s "../../$csi/bin/csi-$name" "$out.tmp/bin/csi-$name"
    done
    ln -s "../$components/stages" "$out.tmp/stages"
    ln -s "../$components/protos" "$out.tmp/protos"
    mv -T "$out.tmp" "$out"
    say "launcher built"
}

hash_of() { sha256sum | cut -c1-16; }

platform="$(go env GOVERSION) $(go env GOOS)/$(go env GOARCH)"
components="components-$({
    cat go.mod go.sum
    printf '%s\n' "$platform" "${COMPONENTS[@]}" "${PROTO_MODULES[@]}"
    declare -f linker_flags build_component copy_stages copy_protos
} | hash_of)"
collector="collector-$({
    printf '%s\n' "$platform"
    declare -f build_collector
    sha256sum collector/go.mod collector/go.sum collector/*.go
} | hash_of)"
prometheus="prometheus-$({
    printf '%s\n' "$platform"
    declare -f build_prometheus
    sha256sum prometheus/go.mod prometheus/go.sum
} | hash_of)"
csi="csi-$({
    printf '%s\n' "$platform"
    declare -f build_csi
    sha256sum csi/go.mod csi/go.sum csi/*.go
} | hash_of)"
launcher="$({
    printf '%s\n' "$components" "$collector" "$prometheus" "$csi"
    declare -f build_launcher
    find cmd internal -name '*.go' ! -name '*_test.go' | sort | xargs sha256sum
} | hash_of)"

cache="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/controlplane"
mkdir -p "$cache"
lacks_csi() { [ -n "${COXSWAIN_FULL:-}" ] && [ ! -x "$cache/$csi/bin/csi-driver" ]; }
if [ ! -x "$cache/$launcher/bin/controlplane" ] || [ ! -e "$cache/$components/complete" ] ||
    [ ! -x "$cache/$collector/bin/collector" ] || [ ! -x "$cache/$prometheus/bin/promtool" ] || lacks_csi; then
    exec 9>"$cache/lock"
    flock -n 9 || { say "waiting for another build to end"; flock 9; }
    if [ ! -e "$cache/$components/complete" ]; then
        say "building into $cache/$components (first time: some 10 minutes on 2 cores)"
        build_components "$cache/$components"
    fi
    [ -x "$cache/$collector/bin/collector" ] || build_collector "$cache/$collector"
    [ -x "$cache/$prometheus/bin/promtool" ] || build_prometheus "$cache/$prometheus"
    if lacks_csi; then build_csi "$cache/$csi"; fi
    [ -x "$cache/$launcher/bin/controlplane" ] ||
        build_launcher "$cache/$launcher" "$components" "$collector" "$prometheus" "$csi"
fi
printf '%s\n' "$cache/$launcher/bin"

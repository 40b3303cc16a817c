#!/usr/bin/env bash
# A local cluster with Coxswain as its only controller manager: real etcd, kube-apiserver and kube-scheduler, with kwok
# playing the nodes. Everything is on loopback and free ports, in a directory of its own; ^C ends and removes it all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

nodes=${NODES:-5}
bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
die() { printf 'run: %s\n' "$*" >&2; exit 1; }

for tool in cargo go; do
    command -v "$tool" >/dev/null || die "$tool is not on the PATH: Rust 1.95 and Go 1.26 are needed (rustup.rs, go.dev/dl)"
done

step "building the control plane (ten minutes the first time, then cached)"
bin=$(tests/controlplane/build.sh)
# COXSWAIN names another build to run.
coxswain=${COXSWAIN:-}
if [ -z "$coxswain" ]; then
    step "building Coxswain (some minutes the first time)"
    cargo build --release --bin coxswain
    coxswain=$PWD/target/release/coxswain
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/coxswain-run-XXXXXX")
launcher=""
cleanup() {
    trap - EXIT INT TERM
    if [ -n "$launcher" ]; then
        printf '\n'
        step "stopping"
        "$bin/controlplane" down --dir "$dir" 2>/dev/null || true
        wait "$launcher" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step "starting the cluster in $dir"
# The launcher is in a session of its own, so that ^C reaches this script alone and the stop is orderly. kwok plays the nodes with
# its label only, so that one is lost that loses it.
setsid "$bin/controlplane" up --dir "$dir" --nodes "$nodes" --kwok-arg=manage-all-nodes=false \
    --kwok-arg=manage-nodes-with-label-selector=type=kwok >"$dir.json" &
launcher=$!
until [ -s "$dir.json" ]; do
    kill -0 "$launcher" 2>/dev/null || { rm -f "$dir.json"; die "the control plane did not start"; }
    sleep 0.2
done
rm -f "$dir.json"

step "starting Coxswain"
# A node is lost sooner than by default, in which there is nothing to see.
"$bin/controlplane" ctl --dir "$dir" add-manager coxswain "$coxswain" --node-monitor-grace-period=20s >/dev/null
export KUBECONFIG=$dir/admin.kubeconfig
kubectl() { "$bin/kubectl" "$@"; }
url=$("$bin/controlplane" ctl --dir "$dir" --json list | grep -o '"url":"[^"]*"' | tail -1 | cut -d'"' -f4)

step "applying examples/web.yaml"
kubectl apply -k deploy/kustomize/roles
kubectl apply -f examples/web.yaml
kubectl rollout status deployment/web --timeout=120s
kubectl get deployments,replicasets,services

cat <<TEXT

${bold}Coxswain is the controller manager of this cluster.${plain} In another terminal:

  export KUBECONFIG=$KUBECONFIG
  export PATH=$bin:\$PATH

  grpcurl -cacert $dir/pki/ca.crt -H "authorization: Bearer \$(kubectl create token operator)" ${url#https://} \\
    coxswain.admin.v1.LeaderService/GetLeader

  kubectl scale deployment/web --replicas=100
  kubectl set image deployment/web web=nginx:2 && kubectl rollout status deployment/web
  kubectl rollout undo deployment/web
  kubectl get events --sort-by=.lastTimestamp

  kubectl label node/node-0 type-            # it falls silent, and is lost 20 s later
  kubectl get nodes -w
  $coxswain explain node node-0 --controller node-lifecycle-controller    # why it is tainted, and when its pods go
  kubectl taint node node-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
  kubectl label node/node-0 type=kwok && kubectl taint node node-0 node.kubernetes.io/out-of-service-

  kubectl -n kube-system get lease kube-controller-manager -o yaml

  curl --cacert $dir/pki/ca.crt $url/healthz?verbose
  curl --cacert $dir/pki/ca.crt -H "Authorization: Bearer \$(kubectl create token operator)" $url/metrics
  curl --cacert $dir/pki/ca.crt -H "Authorization: Bearer \$(kubectl create token operator)" $url/configz

  $coxswain controllers --phase running
  $coxswain explain deployment default/web
  $coxswain events -f

  less $dir/logs/coxswain.log

^C stops everything and removes $dir.
TEXT
wait "$launcher"

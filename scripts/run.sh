#!/usr/bin/env bash
# Starts a local cluster with Coxswain as its only controller manager: etcd, kube-apiserver and kube-scheduler, with Nodes that kwok
# simulates. The cluster listens on free ports of the loopback address and has a directory of its own. ^C stops and removes it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

nodes=${NODES:-5}
bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
die() { printf 'run: %s\n' "$*" >&2; exit 1; }

for tool in cargo go; do
    command -v "$tool" >/dev/null || die "$tool is not on the PATH; install Rust 1.95 (rustup.rs) and Go 1.26 (go.dev/dl)"
done

step "building the control plane (10 minutes the first time, then cached)"
bin=$(tests/controlplane/build.sh)
# COXSWAIN names a built program.
coxswain=${COXSWAIN:-}
if [ -z "$coxswain" ]; then
    step "building Coxswain (a few minutes the first time)"
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
# The launcher has its own session, so that ^C reaches only this script and the stop is orderly. kwok simulates only Nodes with
# its label, so that a Node without the label stops renewing its Lease.
setsid "$bin/controlplane" up --dir "$dir" --nodes "$nodes" --kwok-arg=manage-all-nodes=false \
    --kwok-arg=manage-nodes-with-label-selector=type=kwok >"$dir.json" &
launcher=$!
until [ -s "$dir.json" ]; do
    kill -0 "$launcher" 2>/dev/null || { rm -f "$dir.json"; die "the control plane did not start; the messages above have the reason"; }
    sleep 0.2
done
rm -f "$dir.json"

step "starting Coxswain"
# A Node becomes unreachable sooner than by default, to shorten the demonstration.
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

  kubectl label node/node-0 type-            # stops renewing its Lease, and is tainted after 20 s
  kubectl get nodes -w
  $coxswain explain node node-0 --controller node-lifecycle-controller    # shows why it is tainted, and when its pods are evicted
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

#!/usr/bin/env bash
# Generates, checks and runs the clients in Go, Python and TypeScript.
#
#   clients.sh generate                                        generates code from proto/
#   clients.sh check                                           fails if `generate` changes a file; then runs linters and unit tests
#   clients.sh packages                                        installs the build dependencies of the TypeScript client
#   clients.sh test ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]]
#                                                              runs one scenario in each language on a running manager;
#                                                              with API_SERVER, the client finds the leader by its Lease
#   clients.sh pod API_SERVER CA_FILE TOKEN_FILE               runs the example for pods in each language
set -euo pipefail
start=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../clients"

step() { printf 'clients: %s\n' "$*" >&2; }
packages() { (cd typescript && { [ -d node_modules/.bin ] || npm ci --ignore-scripts --loglevel=error >/dev/null; }); }

generate() {
    for language in go python typescript; do
        step "generating $language"
        "./$language/generate.sh"
    done
}

check() {
    local before after
    # The snapshot has names and contents, also of files that are not committed.
    before=$(snapshot)
    generate
    after=$(snapshot)
    if [ "$before" != "$after" ]; then
        diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | grep '^[<>]' >&2 || true
        echo "clients: the generated code differs from proto/; run scripts/clients.sh generate and commit the result" >&2
        exit 1
    fi
    if grep -l '"resolved"' typescript/package-lock.json ../scripts/buf/package-lock.json; then
        echo "clients: the lock files above name the host of a registry; remove the fields \"resolved\"" >&2
        exit 1
    fi
    step "checking go"
    unformatted=$(cd go && gofmt -l .)
    [ -z "$unformatted" ] || { printf 'clients: run gofmt -w on these files: %s\n' "$unformatted" >&2; exit 1; }
    (cd go && go vet ./... && go test ./... && cd internal/generate && go vet ./...)
    step "checking python"
    python=$(python/environment.sh)
    (cd python && "$python" -m mypy && "$python" -m unittest)
    step "checking typescript"
    packages
    (cd typescript && npm test --silent)
}

snapshot() {
    find go/coxswain python/coxswain/admin/v1 typescript/src/gen -type f -not -path '*/__pycache__/*' -print0 \
        | sort -z | xargs -0 sha256sum
}

scenarios() {
    [ $# -ge 3 ] || { echo "usage: clients.sh test ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]]" >&2; exit 2; }
    # Paths are relative to the caller's directory; the scenarios run in another one.
    set -- "$1" "$(cd "$start" && realpath "$2")" "$(cd "$start" && realpath "$3")" "${@:4}"
    (cd go && go run ./scenario "$@")
    python=$(python/environment.sh)
    (cd python && "$python" scenario.py "$@")
    packages
    (cd typescript && npm run --silent scenario -- "$@")
}

pod() {
    [ $# = 3 ] || { echo "usage: clients.sh pod API_SERVER CA_FILE TOKEN_FILE" >&2; exit 2; }
    set -- "$1" "$(cd "$start" && realpath "$2")" "$(cd "$start" && realpath "$3")"
    # A variable, because a substitution in an argument hides the exit code of its command.
    local identity
    identity=$(cd go && go run ./examples/leader "$@")
    printf 'go example: %s\n' "$identity"
    python=$(python/environment.sh)
    identity=$(cd python && PYTHONPATH=. "$python" examples/leader.py "$@")
    printf 'python example: %s\n' "$identity"
    packages
    identity=$(cd typescript && npx tsc && node build/examples/leader.js "$@")
    printf 'typescript example: %s\n' "$identity"
}

case "${1:-}" in
    generate) generate ;;
    check) check ;;
    packages) packages ;;
    test) scenarios "${@:2}" ;;
    pod) pod "${@:2}" ;;
    *) echo "usage: clients.sh generate | check | packages | test ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]] | pod API_SERVER CA_FILE TOKEN_FILE" >&2; exit 2 ;;
esac

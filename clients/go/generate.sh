#!/usr/bin/env bash
# Generates the Go client from proto/. Needs nothing but Go: the compiler and the plugins are pinned in
# internal/generate/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
rm -f coxswain/admin/v1/*.pb.go
cd internal/generate
go run . ../../../../proto ../..

#!/usr/bin/env bash
# Lints the admin API's proto files (rules in buf.yaml), and checks their format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/buf.sh lint
scripts/buf.sh format --diff --exit-code

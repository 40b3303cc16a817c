#!/usr/bin/env bash
# Lints the admin API's proto files (rules in buf.yaml), checks their format, and compares them with those of the last release, whose
# image is scripts/buf/released.binpb. Create that file for each release: scripts/buf.sh build --exclude-source-info -o scripts/buf/released.binpb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/buf.sh lint
scripts/buf.sh format --diff --exit-code
scripts/buf.sh breaking --against scripts/buf/released.binpb

#!/usr/bin/env bash
# Generates the Python client and its type stubs from proto/, with grpcio-tools and mypy-protobuf as pinned in
# requirements.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python=$(./environment.sh)
rm -f coxswain/admin/v1/*_pb2*.py coxswain/admin/v1/*_pb2*.pyi
PATH="$(dirname "$python"):$PATH" "$python" -m grpc_tools.protoc -I ../../proto \
    --python_out . --grpc_python_out . --mypy_out quiet:. --mypy_grpc_out quiet:. \
    ../../proto/coxswain/admin/v1/*.proto

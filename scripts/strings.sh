#!/usr/bin/env bash
# Lists the strings that users read, by kind, in target/strings.md, so that a reviewer reads them in one sitting, and the documentation of
# public items in target/doc-comments.md. Prints how many there are of each kind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python3 scripts/strings.py list

#!/usr/bin/env bash
# Builds the manual as a static site in target/book. Links to files outside of docs/ become links to the repository. A warning of mdBook
# fails the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

repository=https://github.com/coxswain-dev/coxswain/blob/main
mdbook=$(scripts/tool.sh mdbook)
rm -rf target/book
mkdir -p target
code=0
"$mdbook" build 2>target/book.log || code=$?
cat target/book.log >&2
if [ "$code" != 0 ] || grep -qE '\b(WARN|ERROR)\b' target/book.log; then
    rm -rf target/book
    echo "book: mdBook printed the messages above; correct the Markdown files that they name" >&2
    exit 1
fi
# A page in docs/ reaches files outside of docs/ by one `../`, a page in a directory of docs/ by two.
outside() { sed -i -E "s#(href=\")$1([^\"./][^\"]*)#\1$repository/\2#g; s#(href=\"$repository/[^\"]*)\.html#\1.md#g" "${@:2}"; }
outside '\.\./' target/book/*.html
outside '\.\./\.\./' target/book/*/*.html
echo target/book/index.html

#!/usr/bin/env bash
# Looks up all dependencies in the advisory databases of Rust, Go, npm and Python. Not every machine reaches each database. The script
# prints each lookup that failed, and never counts it as clean. Exit codes: 1 if there is an advisory, otherwise 3 if a lookup
# failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools="${COXSWAIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coxswain}/tools"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0 unknown=0

clean() { printf 'audit: %s: no advisory (%s)\n' "$1" "$2"; }
advised() { printf 'audit: %s: ADVISORIES:\n%s\n' "$1" "$2" >&2; found=1; }
unasked() { printf 'audit: %s: NOT LOOKED UP: %s\n' "$1" "$(tail -n 1 <<<"$2")" >&2; unknown=1; }

# RustSec's database is a git repository on a host that few build machines reach.
rust() {
    local deny="$tools/bin/cargo-deny" lock said
    if [ ! -x "$deny" ]; then
        unasked Rust "cargo-deny is not installed; run make lint first"
        return
    fi
    if ! said=$("$deny" --log-level error fetch db 2>&1); then
        unasked Rust "RustSec's database cannot be fetched: $(grep -m 1 -iE 'error|fail' <<<"$said" || echo "$said")"
        return
    fi
    for lock in Cargo.toml fuzz/Cargo.toml crates/cel-check/fuzz/Cargo.toml; do
        if said=$("$deny" --log-level error --manifest-path "$lock" check --config "$PWD/deny.toml" --disable-fetch advisories 2>&1); then
            clean "$lock" "RustSec"
        else
            advised "$lock" "$said"
        fi
    done
}

# Go's database is a Go module, so a module proxy serves it. The script fetches the newest version; Go verifies its checksum.
go_modules() {
    local version dir said
    if ! version=$(cd "$work" && go list -m -f '{{.Version}}' golang.org/x/vulndb@latest 2>"$work/said") ||
        ! dir=$(cd "$work" && go mod download -json "golang.org/x/vulndb@$version" 2>"$work/said" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])'); then
        unasked clients/go "Go's database cannot be fetched: $(cat "$work/said")"
        return
    fi
    if ! (cd clients/go && go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db="file://$dir/data/osv" -format json ./...) >"$work/go.json" 2>"$work/said"; then
        unasked clients/go "govulncheck failed: $(cat "$work/said")"
        return
    fi
    # The standard library is that of the builder's Go, so its advisories do not fail the audit.
    if said=$(python3 - "$work/go.json" <<'PYTHON'
import json, sys

text, at, modules, own = open(sys.argv[1]).read(), 0, {}, set()
while text[at:].strip():
    at += len(text[at:]) - len(text[at:].lstrip())
    message, at = json.JSONDecoder().raw_decode(text, at)
    if finding := message.get("finding"):
        trace = finding["trace"][0]
        if trace["module"] == "stdlib":
            own.add(finding["osv"])
        else:
            fixed = finding.get("fixed_version") or "no version"
            modules[finding["osv"]] = f'{finding["osv"]}: {trace["module"]} {trace["version"]}, fixed in {fixed}'
if own:
    print(f"audit: the installed Go has {len(own)} advisories; build with a newer version", file=sys.stderr)
print("\n".join(sorted(modules.values())))
sys.exit(bool(modules))
PYTHON
    ); then
        clean clients/go "golang.org/x/vulndb $version"
    else
        advised clients/go "$said"
    fi
}

npm_packages() {
    local folder said
    for folder in clients/typescript scripts/buf scripts/grafana; do
        if (cd "$folder" && npm audit --package-lock-only --json) >"$work/npm.json" 2>"$work/said"; then
            clean "$folder" npm
        elif said=$(python3 -c 'import json, sys; print("\n".join(sorted(json.load(sys.stdin)["vulnerabilities"])))' <"$work/npm.json" 2>/dev/null); then
            advised "$folder" "$said"
        else
            unasked "$folder" "$(grep -m 1 -E '[0-9]{3}|ENOTFOUND|ECONN|ETIMEDOUT' "$work/said" || echo "npm audit printed nothing")"
        fi
    done
}

# pip-audit skips failed lookups and reports the rest as clean.
python_packages() {
    local venv="$tools/pip-audit-2.10.1" said
    if [ ! -e "$venv/.complete" ]; then
        echo "audit: installing pip-audit (once)" >&2
        rm -rf "$venv"
        if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.1; } >"$work/said" 2>&1; then
            unasked clients/python "pip-audit cannot be installed: $(cat "$work/said")"
            return
        fi
        touch "$venv/.complete"
    fi
    "$venv/bin/pip-audit" --progress-spinner off --no-deps --disable-pip -f json -r clients/python/requirements.txt >"$work/pip.json" 2>"$work/said"
    said=$(python3 - "$work/pip.json" <<'PYTHON'
import json, sys

try:
    packages = json.load(open(sys.argv[1]))["dependencies"]
except ValueError:
    packages = []
bad = [f'{each["name"]} {each["version"]}: {vuln["id"]}' for each in packages for vuln in each.get("vulns", [])]
skipped = [each["skip_reason"] for each in packages if "skip_reason" in each]
print("\n".join(bad or skipped[:1] or ["pip-audit printed nothing"]))
sys.exit(1 if bad else 3 if skipped or not packages else 0)
PYTHON
    )
    case $? in
        0) clean clients/python PyPI ;;
        1) advised clients/python "$said" ;;
        *) unasked clients/python "$said" ;;
    esac
}

rust
go_modules
npm_packages
python_packages
if [ $found = 1 ]; then exit 1; fi
if [ $unknown = 1 ]; then
    echo "audit: run make audit on a machine that reaches the remaining databases" >&2
    exit 3
fi

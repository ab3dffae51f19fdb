#!/usr/bin/env bash
# Checks every locked release against OSV's database of known vulnerabilities: Python packages of all locks, and the
# libraries in skein.jar. Exit status: 0 none known, 1 some, 2 the check was not possible.
set -uo pipefail
cd "$(dirname "$0")/.."

readonly release=v2.5.0
if command -v osv-scanner >/dev/null; then
    scanner=(osv-scanner)
elif command -v go >/dev/null; then
    # Built, because `go run` exits with 1 whatever the scanner's exit status is.
    scanner=("${STANDFAST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/standfast}/osv-scanner-$release/osv-scanner")
    if [[ ! -x ${scanner[0]} ]]; then
        echo "building OSV-Scanner $release, once"
        GOBIN=$(dirname "${scanner[0]}") go install "github.com/google/osv-scanner/v2/cmd/osv-scanner@$release" || exit 2
    fi
else
    echo "make: neither \`osv-scanner\` nor \`go\` on the PATH: install OSV-Scanner" \
        "(https://google.github.io/osv-scanner/installation)" >&2
    exit 2
fi
"${scanner[0]}" scan source --lockfile third_party/standfast.cdx.json \
    --lockfile requirements.txt:requirements-dev.lock --lockfile requirements.txt:requirements-dev-mutants.lock "$@"
status=$?
case $status in
    0 | 1) exit $status ;;
    *)
        echo "make: nothing was looked up, for the reason above: the scanner asks api.osv.dev, which this machine may not" \
            "reach. Say nothing about known vulnerabilities from this run; try again where it can be reached" >&2
        exit 2
        ;;
esac

#!/usr/bin/env bash
# Builds appmaster/jar/skein.jar from Skein's source distribution, skein.patch and pom.xml, and writes the checksums of
# its inputs to appmaster/jar/skein.lock. Needs Maven, a JDK 17, `patch`, and a network.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly release=0.8.2 here=third_party/skein target=appmaster/jar
python=${PYTHON:-.venv/bin/python}

for tool in mvn javac patch sha256sum; do
    command -v "$tool" >/dev/null || { echo "build.sh: no \`$tool\` on the PATH" >&2; exit 1; }
done
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The source distribution of the locked release: pip compares it with requirements.lock and does not build it.
"$python" - requirements.lock >"$work/requirements" <<'PYTHON'
import re, sys
found = re.search(r"^skein==(?:.*\\\n)+.*", open(sys.argv[1], encoding="utf-8").read(), re.MULTILINE)
print(found.group() if found else sys.exit("build.sh: requirements.lock has no skein"))
PYTHON
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check setuptools wheel
"$work/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-binary :all: --require-hashes --requirement "$work/requirements" --dest "$work"
tar --extract --gzip --file "$work/skein-$release.tar.gz" --directory "$work" --strip-components 1

# Files that are unused after the patch: the web page with its libraries.
main="$work/java/src/main"
rm -r "$main/webroot" "$main"/resources/*.html "$main"/java/com/anaconda/skein/{WebUI,DynamicProxyServlet}.java \
    "$work/java/src/test"
patch --quiet --strip 1 --directory "$work/java" <"$here/skein.patch"
cp "$here/pom.xml" "$work/java/pom.xml"
mvn --batch-mode --quiet --strict-checksums --file "$work/java/pom.xml" package \
    dependency:list -DincludeScope=runtime -DoutputFile="$work/libraries"
sed -nE 's/^ +([^:]+:[^:]+):jar:([^:]+):.*/\1:\2/p' "$work/libraries" | sort >"$here/libraries"

cp "$work/java/target/skein-$release.jar" "$target/skein.jar"
{
    echo "# What skein.jar is, and what third_party/skein/build.sh made it of: SHA-256 and file. Written by \`make skein\`."
    sha256sum "$work/skein-$release.tar.gz" "$here/pom.xml" "$here/skein.patch" "$here/libraries" "$target/skein.jar" |
        sed 's#  .*/#  #'
} >"$target/skein.lock"
cat "$target/skein.lock"

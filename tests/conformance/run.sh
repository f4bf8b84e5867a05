#!/usr/bin/env bash
# Run openai-python's own test suite with another OpenAI and AsyncOpenAI in their place, and compare with stock openai.
#
#   run.sh MODULE [options]        MODULE provides OpenAI and AsyncOpenAI (subclasses of openai's), "-": stock only
#     --openai VERSION     the release whose tests are run and which is installed    (default: what $PYTHON has)
#     --suite NAME         quick    the files that touch the client                  (default; about a minute a side)
#                          offline  everything that needs no API server              (about three minutes a side)
#                          full     offline and tests/api_resources against a mock server (needs --spec, npm and curl)
#     --scope core|all     all: replace the Azure and Bedrock names too              (default core)
#     --path DIR           where MODULE is found                                     (default: this working tree)
#     --install SPEC       pip install SPEC into the suite's environment (repeat)
#     --snapshots DIR      openai-python's .inline-snapshot/external; without it 13 tests of recorded streams are left out
#     --spec FILE          the OpenAPI document for the mock server
#     --work DIR           environments, tests and baselines                         (default ~/.cache/fastlane-conformance)
#     -n N                 tests at the same time                                    (default 2)
#
# Needs a package index for the first run of a version; nothing leaves the machine while tests run.
# Exit: 0 nothing that passes with stock openai fails, 1 something does (three times), 2 a set-up error.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
[ $# -ge 1 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2; exit 2; }

python="${PYTHON:-$root/.venv/bin/python}"
[ -x "$python" ] || python=python3
python="$(command -v "$python")"

module="$1"; shift
version=""; suite=quick; scope=core; work="$HOME/.cache/fastlane-conformance"; workers=2; spec=""; snapshots=""; path="$root"; installs=()
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
  case "$1" in
    --openai) version="$2";;
    --suite) suite="$2";;
    --scope) scope="$2";;
    --path) path="$(cd "$2" && pwd)";;
    --install) installs+=("$2");;
    --snapshots) snapshots="$(cd "$2" && pwd)";;
    --spec) spec="$(cd "$(dirname "$2")" && pwd)/$(basename "$2")";;
    --work) work="$2";;
    -n) workers="$2";;
    *) echo "unknown option $1" >&2; exit 2;;
  esac
  shift 2
done
[ -n "$version" ] || version="$("$python" -c 'from importlib.metadata import version; print(version("openai"))')"
mkdir -p "$work"; work="$(cd "$work" && pwd)"
venv="$work/venv-$version"; source="$work/openai-$version"; out="$work/out-$version-$suite"; mkdir -p "$out"

# 1. The environment: openai in this version, the tools that its own pyproject names, and what fastlane needs.
requirements=("openai[aiohttp,realtime,datalib,bedrock]==$version" "httpx2[http2]>=2.12,<3" "h2>=4,<5" "orjson>=3.10,<4" "httpx>=0.28,<1"
  "numpy>=2.0.2"
  "pytest>=9.0.3" "pytest-asyncio>=1.4.0" "pytest-xdist>=3.6.1" "Pillow" "rich>=13.7.1" "inline-snapshot>=0.28.0"
  "azure-identity>=1.14.1" "botocore<2" "trio>=0.22.2" "griffe>=1" "ruff" "google-auth[requests]>=2.36" "hatchling")
case "$version" in
  2.*) requirements+=(respx time-machine dirty-equals nest_asyncio jsonschema importlib-metadata);;
esac
[ ${#installs[@]} -eq 0 ] || requirements+=("${installs[@]}")
stamp="$venv/.installed-$(printf '%s\n' "${requirements[@]}" | cksum | cut -d' ' -f1)"
if [ ! -e "$stamp" ]; then
  echo "setting up openai $version in $venv"
  [ -x "$venv/bin/python" ] || "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"
  touch "$stamp"
fi

# 2. The tests: the source distribution carries them.
if [ ! -d "$source/tests" ]; then
  download="$(mktemp -d)"
  "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary openai --dest "$download" "openai==$version"
  tar xzf "$download/openai-$version.tar.gz" -C "$work"
  rm -r "$download"
fi
recorded="$source/.inline-snapshot/external"
[ -z "$snapshots" ] || { mkdir -p "$recorded"; cp "$snapshots"/*.bin "$recorded/"; }

# 3. What to run. Left out are tests of openai's repository (lock files, workflows), which no client can change.
arguments=(-p no:cacheprovider -q -o addopts= --tb=short --ignore=tests/test_uv_workflows.py
  --ignore=tests/test_consumer_compatibility.py --ignore=tests/test_dependency_constraints.py)
compgen -G "$recorded/*.bin" >/dev/null || arguments+=(--ignore=tests/lib/chat/test_completions_streaming.py)
case "$suite" in
  quick)
    targets=()
    while read -r target; do
      [ ! -e "$source/$target" ] || targets+=("$target")
    done < <(grep -v '^#' "$here/quick.txt");;
  offline) targets=(tests); arguments+=(--ignore=tests/api_resources);;
  full) targets=(tests); [ -n "$spec" ] || { echo "--suite full needs --spec" >&2; exit 2; };;
  *) echo "unknown suite $suite" >&2; exit 2;;
esac

# 4. The mock server, for the full suite only.
export TEST_API_BASE_URL="http://127.0.0.1:9"
if [ "$suite" = full ]; then
  mock="$work/mock"; mkdir -p "$mock"
  [ -x "$mock/node_modules/.bin/steady" ] || (cd "$mock" && npm init -y >/dev/null && npm install --silent @stdy/cli@0.22.2 >/dev/null)
  port="$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
  export TEST_API_BASE_URL="http://127.0.0.1:$port"
  "$(compgen -G "$mock/node_modules/@stdy/cli-*/bin/steady" | head -1)" --host 127.0.0.1 -p "$port" -q \
    --validator-query-array-format=brackets --validator-form-array-format=brackets \
    --validator-query-object-format=brackets --validator-form-object-format=brackets "$spec" >"$out/mock.log" 2>&1 &
  mock_pid=$!
  trap 'kill "$mock_pid" 2>/dev/null || true' EXIT
  curl --silent --fail --retry 120 --retry-delay 1 --retry-connrefused "$TEST_API_BASE_URL/_x-steady/health" >/dev/null \
    || { tail "$out/mock.log" >&2; exit 2; }
fi

run() { # run MODULE JUNIT LOG WORKERS TARGET...
  local module="$1" junit="$2" log="$3" workers="$4"; shift 4
  rm -f "$junit"
  # Some tests send SIGINT to themselves, which a shell's background job ignores: back to the default first.
  (cd "$source" && PYTHONPATH="$here:$path" FASTLANE_CONFORMANCE_MODULE="$module" FASTLANE_CONFORMANCE_SCOPE="$scope" "$venv/bin/python" -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])' \
    -p fastlane_conformance "${arguments[@]}" -n "$workers" --junitxml="$junit" "$@" >"$log" 2>&1) || true
  [ -s "$junit" ] || { echo "pytest did not run, see $log" >&2; tail -20 "$log" >&2; exit 2; }
  tail -1 "$log"
}

# 5. Stock openai, once per version and suite; then ours.
stock="$out/stock$([ "$suite" != full ] || cksum <"$spec" | cut -d' ' -f1)$([ ! -d "$recorded" ] || echo s).xml"
[ -s "$stock" ] || { echo "stock openai $version ($suite):"; run "" "$stock" "$out/stock.log" "$workers" "${targets[@]}"; }
[ "$module" != "-" ] || exit 0
ours="$out/${module//./_}-$scope"
echo "$module ($scope) on openai $version ($suite):"
run "$module" "$ours.xml" "$ours.log" "$workers" "${targets[@]}"
grep "fastlane_conformance:" "$ours.log" || true
expected=(); [ "$scope" != all ] || expected=(--expected "$here/expected-all.txt")
status=0
"$venv/bin/python" "$here/compare.py" "$stock" "$ours.xml" --lost "$ours.lost" ${expected[@]+"${expected[@]}"} || status=1

# 6. Some of these tests depend on time and fail now and then on a busy machine: what is lost must be lost twice more, alone.
for try in 1 2; do
  [ $status -ne 0 ] || break
  mapfile -t lost <"$ours.lost"
  echo "again, alone: ${#lost[@]} ($try)"
  run "$module" "$ours-$try.xml" "$ours-$try.log" 0 "${lost[@]}"
  "$venv/bin/python" "$here/compare.py" "$stock" "$ours-$try.xml" --only "$ours.lost" --lost "$ours.lost" && status=0
done
if [ $status -eq 0 ]; then
  echo "CONFORMS: nothing that passes with stock openai $version fails with $module"
else
  echo "DOES NOT CONFORM: see $ours.log"
fi
exit $status

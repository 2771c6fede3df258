# Sourced by .ci/run and .ci/long: an environment of their own, and steps that report their time and whether they failed.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=$(command -v python3.11 || command -v python3) || { echo "Python 3.11 or later is needed." >&2; exit 1; }
environment=$(mktemp -d "${TMPDIR:-/tmp}/tablestone-ci.XXXXXX") || exit 1
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$environment"' EXIT
# The caller's environment must not configure the servers under test, find other tools, or choose the tests; nor keep
# Python from writing what it compiles, which each of the many processes would compile anew.
unset $(compgen -e TABLESTONE_) PYTHONPATH PYTEST_ADDOPTS VIRTUAL_ENV SLOW ENGINE_UNDER_TEST PROGRAM_UNDER_TEST FOLDER_BUILD PYTHONDONTWRITEBYTECODE
export PATH="$environment/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
# A new version of a tool must not fail a commit that has passed. pip from 25.3 on asks for the second name while it builds.
export PIP_CONSTRAINT="$PWD/.ci/constraints.txt" PIP_BUILD_CONSTRAINT="$PWD/.ci/constraints.txt"
times=()
failed=()

# A command that could not look, such as without a network, exits with 77 after its reason, as in automake.
step() { # title, then the command
    local title=$1 began=$SECONDS status=0 output="$environment/output.$BASHPID"
    shift
    printf '\n== %s\n' "$title"
    "$@" 2>&1 | tee "$output" || status=$?
    [ "$status" -ne 77 ] || { skip "$title" "$(tail -n 1 "$output")"; return 0; }
    [ "$status" -eq 0 ] || { failed+=("$title"); printf '== FAILED: %s\n' "$title"; }
    times+=("$(printf '%5d s  %s' "$((SECONDS - began))" "$title")")
    ! declare -F after_step >/dev/null || after_step "$title" "$status" "$(tail -n 1 "$output")"
    return "$status"
}

declare -A beside=()
begin() { # a name, then a command that runs beside the next steps
    local name=$1
    shift
    { "$@" >"$environment/$name.said" 2>&1; echo $? >"$environment/$name.status"; } &
    beside[$name]=$!
}

finish() { # the name: waits for the command, and shows what it said. A step is a subshell, which cannot `wait` for it.
    tail --pid="${beside[$1]}" -f /dev/null
    cat "$environment/$1.said"
    return "$(cat "$environment/$1.status")"
}

skip() { # title, and the reason
    printf '\n== skipped: %s: %s\n' "$1" "$2"
    times+=("$(printf 'skipped  %s: %s' "$1" "$2")")
    ! declare -F after_step >/dev/null || after_step "$1" skipped "$2"
}

# A test that hangs shows its stack after five minutes; the step ends after MINUTES.
tests() { # arguments of pytest
    timeout --kill-after=60 "${MINUTES:-20}m" pytest --quiet --durations=10 -o cache_dir="$environment/cache" \
        -o faulthandler_timeout=300 "$@"
}

installation() { # without the compiled modules
    "$python" -m venv "$environment" &&
        HATCH_BUILD_NO_HOOKS=true pip install --quiet '.[test,dev,docs,deploy,cassandra,postgresql]'
}

compile() { # beside the next steps
    begin wheel pip wheel --quiet --no-deps --wheel-dir "$environment/wheel" .
}

compiled() {
    finish wheel && pip install --quiet --no-deps --force-reinstall "$environment"/wheel/*.whl || return
    ! command -v cc >/dev/null || tablestone --version | grep "compiled, filters in C"
}

end() { # a file to print at the end, if any; exits with 0 if no step failed
    printf '\n== the seconds of each step\n'
    printf '%s\n' "${times[@]}" "$(printf '%5d s  in all' "$SECONDS")"
    [ "${#failed[@]}" -eq 0 ] || printf 'failed: %s\n' "${failed[@]}"
    [ ! -s "${1:-}" ] || cat "$1"
    exit "$((${#failed[@]} > 0))"
}

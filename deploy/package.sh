# Sourced by the programs `build` beside it with their words, FOLDER and OUTDIR. It leaves the variables `here` (the
# program's directory), `out`, `version`, `architecture`, and `work`: a directory in OUTDIR that is removed at the end.

fail() { printf '%s\n' "$*" >&2; exit 1; }
[ "$#" -eq 2 ] || { printf 'Usage: %s FOLDER OUTDIR\n' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$1/tablestone" ] || fail "$1 is not the folder that runs without Python: it has no program tablestone."
version=$("$1/tablestone" --version) || fail "$1/tablestone does not run on this machine: package it where it runs."
version=${version#Tablestone } version=${version%%,*}
architecture=$(dpkg --print-architecture)
# The time in the files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null)} ||
    fail "Outside of a checkout, set SOURCE_DATE_EPOCH: the time that the files get, in seconds since 1970."
export SOURCE_DATE_EPOCH
mkdir -p "$2"
out=$(cd "$2" && pwd)
work=$(mktemp -d "$out/.tablestone.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
mkdir "$work/context"
# Whatever the caller's umask was, everybody may read it.
said=$(cp -R "$1" "$work/context/tablestone" 2>&1) || fail "${said%%$'\n'*}"
chmod -R u=rwX,go=rX "$work/context"

finished() { # a file of $work, and its name in OUTDIR: it appears there whole, or not at all
    mv "$work/$1" "$out/$2"
    printf '%s\n' "$out/$2"
}

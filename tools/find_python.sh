#!/bin/sh
# Prints the path of a working Python: find_python.sh [3.12] wants that version, without an argument any supported one.
# Looks on PATH and in pyenv. Prints nothing when there is none.
works() { # PYTHON VERSION...
  python=$1
  shift
  "$python" -c 'import sys, venv; print(sys.executable) if "%d.%d" % sys.version_info[:2] in sys.argv else sys.exit(1)' "$@" 2>/dev/null
}
for version in ${1:-3.11 3.12 3.13}; do
  for candidate in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python; do
    if works "$candidate" "$version"; then
      exit 0
    fi
  done
done
[ -n "$1" ] || works python3 3.11 3.12 3.13
exit 0

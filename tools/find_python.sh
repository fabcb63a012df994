#!/bin/sh
# Prints the path of a working Python: find_python.sh [3.12] wants that version, without an argument any supported one.
# Looks on PATH and in pyenv. Prints nothing when there is none.
works() { "$1" -c "import sys, venv; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12), (3, 13)])" 2>/dev/null; }
for version in ${1:-3.11 3.12 3.13}; do
  for candidate in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python; do
    if works "$candidate" && [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$version" ]; then
      "$candidate" -c 'import sys; print(sys.executable)'
      exit 0
    fi
  done
done
[ -n "$1" ] || { works python3 && python3 -c 'import sys; print(sys.executable)'; }
exit 0

#!/bin/bash
# Builds the test extension _tatara_vm for one Python: build.sh PYTHON OUTPUT_DIR
set -eu
python=$1
out=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
launcher=$(command -v ccache || true)
flags="-std=c++20 -fPIC -DNDEBUG -fvisibility=hidden -Wall -Wextra -Wconversion -Wshadow -Werror ${VM_OPT:--O2}"
mkdir -p "$out"
objects=()
for source in "$root"/src/capture/vm/*.cpp "$root"/tests/pyvm/*.cpp; do
  object=$out/$(basename "$source" .cpp).o
  $launcher g++ $flags -I"$root/src" -isystem "$include" -isystem "$include/internal" -c "$source" -o "$object"
  objects+=("$object")
done
g++ -shared ${VM_LINK:-} -o "$out/_tatara_vm$suffix" "${objects[@]}"
echo "$out/_tatara_vm$suffix"

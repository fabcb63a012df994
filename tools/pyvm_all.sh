#!/bin/bash
# Builds the test extension for each given Python (all of pyenv's 3.11, 3.12 and 3.13 by default) and compares CPython's
# own tests with and without the VM; then the core of them with observers that perform, hand back and reload.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=("$HOME"/.pyenv/versions/3.1[123].*/bin/python3)
core="test_grammar test_opcodes test_dict test_generators test_coroutines test_asyncgen test_class test_descr test_iter
test_functools test_contextlib test_with test_unpack_ex test_patma test_scope test_super test_call test_extcall
test_listcomps test_raise test_exception_group test_except_star test_fstring test_yield_from test_frame test_traceback
test_type_params test_typing test_builtin"
status=0
for python in "${pythons[@]}"; do
  out=$(mktemp -d -t pyvm-XXXXXX)
  "$root/tests/pyvm/build.sh" "$python" "$out" > /dev/null || exit 1
  "$python" "$root/tools/pyvm.py" --baseline "$out/plain.json" "$out" || status=1
  for mode in perform handback reload; do
    echo "observer: $mode"
    # shellcheck disable=SC2086
    "$python" "$root/tools/pyvm.py" --mode "$mode" --baseline "$out/plain.json" "$out" $core || status=1
  done
  rm -r "$out"
done
exit $status

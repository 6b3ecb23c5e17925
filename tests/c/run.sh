#!/bin/sh
# Runs C test programs: run.sh NAME PROGRAM... A program passes with 0, is skipped with 77 (its last line says why), and fails
# with anything else; then all that it printed is shown. The last line counts.
set -u
name=$1
shift
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "$@"; do
    timeout --kill-after=10 "${HF_TEST_SECONDS:-240}" "$program" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) passed=$((passed + 1)) && echo "  ok    $program" ;;
    77) skipped=$((skipped + 1)) && echo "  skip  $program: $(tail -n 1 "$log")" ;;
    *) failed=$((failed + 1)) && cat "$log" && echo "  FAIL  $program: exit status $status" ;;
    esac
done
echo "$name: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

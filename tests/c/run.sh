#!/bin/sh
# Runs C test programs, JOBS (2) at a time: run.sh NAME PROGRAM... A program passes with 0, is skipped with 77 (its last line says
# why), and fails with anything else; then all that it printed is shown. The last line counts; with
# $HOLDFAST_EVIDENCE it goes there, too (tests/evidence_report.py). $HF_PLANTED: bugs of
# torture_stream that a sanitizer must see.
set -u
name=$1
shift
begun=$(date +%s)
verdicts=$(mktemp -d)
trap 'rm -rf "$verdicts"' EXIT

# One program: its verdict becomes an empty file, its output is shown in one piece.
one='
log=$1/$(basename "$2")
timeout --kill-after=10 "${HF_TEST_SECONDS:-900}" "$2" >"$log" 2>&1 </dev/null
status=$?
case $status in
0) verdict=passed line="  ok    $2" ;;
77) verdict=skipped line="  skip  $2: $(tail -n 1 "$log")" ;;
*) verdict=failed line="$(cat "$log")
  FAIL  $2: exit status $status" ;;
esac
: >"$log.$verdict"
echo "$line"
'
printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -I '{}' sh -c "$one" one "$verdicts" '{}'

planted=0 caught=0
for bug in ${HF_PLANTED:-}; do
	case $bug in
	overrun) says='AddressSanitizer: global-buffer-overflow' ;;
	undefined) says='runtime error: signed integer overflow' ;;
	race) says='ThreadSanitizer: data race' ;;
	*) says='no such bug' ;;
	esac
	program=$(printf '%s\n' "$@" | grep '/torture_stream$')
	planted=$((planted + 1))
	if ! timeout --kill-after=10 900 "$program" "$bug" >"$verdicts/planted" 2>&1 && grep -q "$says" "$verdicts/planted"; then
		caught=$((caught + 1))
		echo "  ok    $program $bug: $says"
	else
		echo "  FAIL  $program $bug: not seen ($says): $(tail -n 1 "$verdicts/planted")"
	fi
done

count() { find "$verdicts" -name "*.$1" | wc -l; }
passed=$(count passed) failed=$(count failed) skipped=$(count skipped)
echo "$name: $passed passed, $failed failed, $skipped skipped"
if [ -n "${HOLDFAST_EVIDENCE:-}" ]; then
	mkdir -p "$HOLDFAST_EVIDENCE"
	echo "{\"name\": \"$name\", \"counts\": {\"programs\": $passed}, \"findings\": $failed, \"planted\": [$caught, $planted]," \
		"\"seconds\": $(($(date +%s) - begun))}" >"$HOLDFAST_EVIDENCE/$name.json"
fi
[ "$((passed + failed + skipped))" -eq $# ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ] && [ $caught -eq $planted ]

#!/usr/bin/env bash
# Runs digits_ensemble: what it writes when all is well, and that it writes nothing but one line when it is not.
set -uo pipefail

program=$PWD/$1
digits=$PWD/examples/data/digits.csv
folder=$(mktemp -d "$TEST_TMPDIR/run.XXXXXX")
export BUILD_WORKING_DIRECTORY=$folder
failures=0

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# complains WORDS ARGUMENTS...: exit code 1, one line on stderr that has WORDS, nothing on stdout, no file.
complains() {
  local words=$1 status
  shift
  "$program" --out=out "$@" >"$folder/stdout" 2>"$folder/stderr"
  status=$?
  [[ $status == 1 ]] || fail "$*: exit code $status"
  [[ $(wc -l <"$folder/stderr") == 1 ]] || fail "$*: not one line: $(cat "$folder/stderr")"
  grep -qF -e "$words" "$folder/stderr" || fail "$*: no '$words' in: $(cat "$folder/stderr")"
  [[ ! -s $folder/stdout ]] || fail "$*: stdout is not empty"
  [[ ! -e $folder/out ]] || fail "$*: wrote something"
}

complains "--nosuchflag: there is no such flag" --nosuchflag=1
complains "--nosuchflag: there is no such flag" --nosuchflag
complains "--nosuchflag: there is no such flag" --nosuchflag --norsuch
complains "--members: the value is missing" --members
complains "--members: the value is missing" --members --loop
complains "--members=: expected a whole number" --members=
complains "--members=many: expected a whole number" --members=many
complains "--members=many: expected a whole number" --members many
complains "--epochs=1.5: expected a whole number" --epochs=1.5
complains "--loop=perhaps: expected true or false" --loop=perhaps
complains "--members=0: expected 1 to" --members=0
complains "--width=-1: expected 0 to" --width=-1
complains "--epochs=0: expected 1 to" --epochs=0
complains "--epochs=-1: expected 1 to" --epochs -1
complains "--batch=0: expected 1 to" --batch=0
complains "--batch=2000: expected 1 to 1079" --batch=2000
complains "--seed=-1: expected 0 to" --seed=-1
complains "--threads=0: expected 1 to" --threads=0
complains '"stray" is not a flag' stray
complains '"8" is not a flag' --loop 8
complains '"-members=8" is not a flag' -members=8
complains "missing.csv: there is no such file" --data=missing.csv

: >"$folder/empty.csv"
complains "empty.csv: the file is empty" --data=empty.csv
sed '3s/^[^,]*,//' "$digits" >"$folder/narrow.csv"
complains "narrow.csv:3: expected 65 columns, found 64" --data=narrow.csv
sed '5s/^0,/zero,/' "$digits" >"$folder/word.csv"
complains 'word.csv:5: column 1: "zero" is not a pixel value' --data=word.csv
sed '7s/[0-9]*$/10/' "$digits" >"$folder/label.csv"
complains "label.csv:7: column 65: the label 10 is not in 0 to 9" --data=label.csv
head -n 4 "$digits" >"$folder/few.csv"
complains "4 digits are too few to split" --data=few.csv
complains "cannot be read" --data=.

echo kept >"$folder/taken"
complains "this is a file" --out=taken
complains "--out=taken/below: nothing can be written there" --out=taken/below
complains "--out=: expected a folder" --out=
if ((EUID != 0)); then  # root may write anywhere
  mkdir -m 555 "$folder/locked"
  complains "--out=locked/below: nothing can be written there" --out=locked/below
fi
[[ $(cat "$folder/taken") == kept ]] || fail "--out=taken: changed the file"

"$program" --help >"$folder/stdout" 2>"$folder/stderr" || fail "--help: exit code $?"
[[ ! -s $folder/stderr ]] || fail "--help: $(cat "$folder/stderr")"
for flag in members width epochs batch seed threads data out loop help; do
  grep -q "^  --$flag " "$folder/stdout" || fail "--help: no line for --$flag"
done

"$program" --members=3 --width=8 --epochs=2 --loop --out=out/of/some/depth >"$folder/stdout" 2>"$folder/stderr" ||
  fail "a good run: $(cat "$folder/stderr")"
for file in metrics.json disagreement.png ensemble.graft; do
  [[ -s $folder/out/of/some/depth/$file ]] || fail "a good run: no $file"
done
for key in ensemble_accuracy mean_member_accuracy nll ece seconds loop_ratio max_loss_difference_first_epoch \
  max_loss_difference; do
  grep -q "\"$key\"" "$folder/out/of/some/depth/metrics.json" || fail "a good run: no $key in metrics.json"
done
grep -q "member 2 " "$folder/stdout" || fail "a good run: no row for the last member"

[[ $failures == 0 ]]

#!/usr/bin/env bash
# What somebody new does, by the installed programs: the demo, a training on simulated pairs, a folder of images as
# they come, calibration, audit, evaluation. Exit codes and messages are held against what one needs to know then.
#
#     bash tests/newcomer.sh            # makes an environment, and installs the wheel with extras; minutes
#     bash tests/newcomer.sh --short    # with the sfumato that is first on the PATH; no demo, a training of seconds
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
is_short=$([ "${1:-}" = --short ] && echo yes || echo no)

fail() { echo "newcomer: $*, but it said:"; cat said; exit 1; }
run() { # CODE COMMAND...: what it prints is kept in the file `said`
  local expected=$1 code=0
  shift
  "$@" >said 2>&1 || code=$?
  asked=$*
  [ "$code" = "$expected" ] || fail "expected exit code $expected of '$asked' and got $code"
}
says() { # TEXT...: each is in what the last command printed
  for text in "$@"; do grep -qF -- "$text" said || fail "expected '$asked' to say '$text'"; done
}
there() { # FILE...
  for file in "$@"; do [ -s "$file" ] || fail "expected '$asked' to write $file"; done
}

if [ "$is_short" = no ]; then
  "${PYTHON:-python3}" -m venv "$place/venv"
  install=("$place/venv/bin/python" -m pip install --quiet --no-compile)
  "${install[@]}" 'build>=1.2' "${TORCH:-torch==2.13.0}"
  "$place/venv/bin/python" -m build --wheel --outdir "$place" "$root" >"$place/build.log" || { cat "$place/build.log"; exit 1; }
  "${install[@]}" "$(echo "$place"/sfumato-*.whl)[evaluate,microscopes]" "${TORCH:-torch==2.13.0}"
  export PATH="$place/venv/bin:$PATH"
fi
has() { python -c "import $1" 2>/dev/null; } # a library of an extra
cd "$place" # away from the sources

if [ "$is_short" = no ]; then
  run 0 sfumato demo --out demo
  says "dB"
  there demo/demo.png demo/restored/microtubules_std.tif
  fields=(--side 128 --train 3 --validation 1 --test 3)
  training=(--minutes 1)
  calibration=(--level 0.9)
  quick=()
else
  # Parts of the preset that take seconds to fit are left out.
  fields=(--side 32 --train 1 --validation 1 --test 1)
  training=(--set train.steps=8 --set train.batch_size=4 --set data.patch=32 --set model.linear_start=false
    --set model.linear_finish=false --set model.coloured_noise=false)
  quick=(--samples 2 --steps 2)
  calibration=(--level 0.5 --most 8 "${quick[@]}")
fi

# Pairs, and a model of them.
run 0 sfumato simulate microscopy --out sim "${fields[@]}"
says "train on it with --manifest sim/manifest.csv"
run 0 sfumato train --manifest sim/manifest.csv --out run --preset small --set data.upsample=true "${training[@]}"
says "trained: run/model.safetensors" "validation PSNR over"
there run/model.safetensors

# A folder as it comes: names with dots, a file that was cut off, a file of a microscope's maker.
mkdir -p new/day.2
test=($(grep ,test sim/manifest.csv | sed 's|,.*||; s|^|sim/|'))
cp "${test[0]}" new/cell.v2.3.tif
cp "${test[1]}" new/day.2/cell.0.5um.tif
head -c 300 "${test[0]}" >new/damaged.tif
if ! has pylibCZIrw.czi; then
  printf ZISRAWFILE >new/slide.czi # all that is looked at before the library is missed
  failed=2 restored=2
elif [ -n "${SFUMATO_DATA:-}" ] && [ -d "$SFUMATO_DATA/vendor_formats" ]; then
  cp "$SFUMATO_DATA/vendor_formats/CellDivision_T3_Z5_CH2_X240_Y170.czi" new/slide.czi
  failed=1 restored=3
else
  failed=1 restored=2
  echo "newcomer: no CZI file is restored: set SFUMATO_DATA to a folder that has vendor_formats"
fi
run 1 sfumato restore run/model.safetensors new restored --channel 0 --time 0 "${quick[@]}"
says "$failed of $((failed + restored)) images could not be restored (the others are done)" "damaged.tif: " \
  "fix or replace these and rerun the same command to restore what is missing"
there restored/cell.v2.3.tif restored/cell.v2.3_std.tif restored/day.2/cell.0.5um.tif restored/day.2/cell.0.5um_std.tif
[ ! -e restored/damaged.tif ] || fail "expected nothing of the damaged file"
if [ "$failed" = 2 ]; then
  says "slide.czi: " "Zeiss CZI" "pip install 'sfumato[microscopes]'"
  echo "newcomer: no CZI file is restored, as the extra microscopes is not installed; its message is checked"
elif [ "$restored" = 3 ]; then
  there restored/slide.tif restored/slide_std.tif
fi

# The second time, all that is there is left alone; a file that was put right is restored.
before=$(cksum restored/cell.v2.3.tif)
run 1 sfumato restore run/model.safetensors new restored --channel 0 --time 0 "${quick[@]}"
says "already restored: $restored images in restored" "damaged.tif: "
if [ "$is_short" = no ]; then
  cp "${test[2]}" new/damaged.tif
  run 0 sfumato restore run/model.safetensors new restored --channel 0 --time 0
  says "2 of $((restored + 1)): damaged.tif" "restored: $((restored + 1)) images in restored"
fi
[ "$before" = "$(cksum restored/cell.v2.3.tif)" ] || fail "expected a finished file to stay as it is"

# How far to trust it.
run 0 sfumato calibrate run/model.safetensors sim/manifest.csv "${calibration[@]}"
says "held out: " "independent units of"
if has scipy && has torchmetrics && has matplotlib; then
  run 0 sfumato audit run/model.safetensors new/cell.v2.3.tif --out audit "${quick[@]}"
  says "report.html"
  there audit/report.html
  run 0 sfumato evaluate run/model.safetensors --manifest sim/manifest.csv --out evaluation --most 4 "${quick[@]}"
  says "PSNR" "evaluated: evaluation/report.html"
  there evaluation/scores.csv evaluation/report.html
else
  for command in "audit run/model.safetensors new/cell.v2.3.tif --out audit" \
    "evaluate run/model.safetensors --manifest sim/manifest.csv --out evaluation --most 2"; do
    run 2 sfumato $command "${quick[@]}"
    says "error: " "pip install 'sfumato[evaluate]'"
  done
fi
times >spent # its second line is that of the programs
echo "newcomer: passed; the programs took $(awk 'NR == 2 {print $1}' spent) of a core"

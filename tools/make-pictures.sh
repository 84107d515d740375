#!/usr/bin/env bash
# Draws the pictures of the docs: a plan's page as a browser shows it, and a frontier.
#   tools/make-pictures.sh [BUILD]     BUILD: build/release (default), with memopt-compile in bin/
# Needs chromium or google-chrome. Times in the pictures are predictions, so they come out alike everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
compile=$(realpath "${1:-build/release}")/bin/memopt-compile
browser=$(command -v chromium google-chrome chromium-browser | head -n 1) || { echo "no browser found" >&2; exit 3; }
pictures=docs/pictures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$pictures"

"$compile" tools/export/models/bytegpt.train.pt2 --optimizer=adamw --run-threads=2 --device-memory=20MiB --frontier=8 \
  --frontier-output="$work/frontier" --html="$work/plan.html" >"$work/frontier.txt"
cp "$work/frontier.svg" "$pictures/frontier.svg"
"$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
  --window-size=1160,2960 --screenshot="$work/plan.png" "file://$work/plan.html" 2>"$work/browser.txt"
cp "$work/plan.png" "$pictures/plan-page.png"
ls -l "$pictures"

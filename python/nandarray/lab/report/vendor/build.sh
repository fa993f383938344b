#!/bin/sh
# Bundle the parts of Apache ECharts that entry.js names into echarts.min.js.gz, and renew its hash and licences.
#
# Needs npm and its registry; package.json pins exact versions, so that the same bytes come out. Everything happens in a
# temporary folder. Not part of any build of nandarray: the bundle is committed, and a test compares its hash.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/entry.js" "$work"
cd "$work"
npm install --no-audit --no-fund --no-package-lock
node_modules/.bin/esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2020 \
  --legal-comments=none --outfile=echarts.min.js
gzip -9 -n -c echarts.min.js >"$here/echarts.min.js.gz"
(sha256sum echarts.min.js) >"$here/SHA256"
{
  echo "echarts.min.js.gz is a bundle of four libraries. Their notices and licences follow."
  for part in echarts/NOTICE zrender/LICENSE echarts/licenses/LICENSE-d3 tslib/LICENSE.txt echarts/LICENSE; do
    printf '\n======== %s ========\n\n' "$part"
    cat "node_modules/$part"
  done
} | sed 's/[ \t\r]*$//' >"$here/LICENSES.txt"

#!/bin/bash
# all.sh has each release of bbolt that the module proxy has since v1.3 write a file, keeps those that differ as
# ../FIRSTVERSION.db.gz, and lists in ../releases which file is which release's. It needs the network; the test that reads
# the files does not.
set -euo pipefail
cd "$(dirname "$0")"
export GOFLAGS= GOWORK=off CGO_ENABLED=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rm -f ../*.db.gz
: >../releases
for version in $(go list -m -versions -f '{{range .Versions}}{{.}} {{end}}' go.etcd.io/bbolt); do
	case $version in *-*) continue ;; esac
	cp main.go go.mod "$scratch/"
	(
		cd "$scratch"
		go mod edit -require="go.etcd.io/bbolt@$version"
		go mod tidy >/dev/null 2>&1
		test "$(go list -m -f '{{.Version}}' go.etcd.io/bbolt)" = "$version"
		go run . >file
	)
	same=$(cd .. && for f in *.db.gz; do if cmp -s "$f" "$scratch/file"; then echo "$f"; fi; done)
	if [ -z "$same" ]; then
		same=$version.db.gz
		mv "$scratch/file" "../$same"
	fi
	echo "$version $same" | tee -a ../releases
	rm -f "$scratch"/go.*
done

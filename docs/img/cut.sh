#!/bin/bash
# The README's terminal session, in the lab "default": `make recording` records it and draws cut.svg.
set -eu # of a pipe the last command counts: head ends the others
yurtlab=bin/yurtlab
kubectl() { $yurtlab kubectl -- "$@"; }
note() { printf '\033[34m# %s\033[0m\n' "$1"; sleep 1; }
run() { printf '\033[1m$ %s\033[0m\n' "$1"; sleep 1; eval "$1"; sleep 3; }
await() { timeout 120 bash -c "kubectl() { $yurtlab kubectl -- \"\$@\"; }; until $1; do sleep 0.2; done"; }

{
    kubectl create deployment shop --image registry.local/web:1 --replicas 3
    kubectl rollout status deployment/shop --timeout 2m
    until kubectl yurt leader p1 | grep -q 'p1-n[12]'; do $yurtlab node restart p1-n3 hub; sleep 10; done
    await 'kubectl yurt status | grep -qE "3/3 +Ready +p1-n[12] +- +-$"'
} > /dev/null

note "A cloud, and a site of three nodes"
run "kubectl yurt status"
note "The WAN link of p1-n3 goes silent"
run "bin/yurtlab link cut wan p1-n3"
await "kubectl yurt why p1-n3 | grep -q Delegated"
run "kubectl yurt why p1-n3 | head -2"
run "kubectl get nodes -L apps.openyurt.io/nodepool"
note "Somebody on site asks the pool's coordinator, over the LAN"
run "bin/yurtlab kubectl --via coordinator/p1 -- get pods --field-selector spec.nodeName=p1-n3"
clear
note "The link is back; then the machine really dies"
run "bin/yurtlab link heal wan p1-n3"
await "kubectl yurt why p1-n3 | grep -q Connected"
run "bin/yurtlab node kill p1-n3"
await "kubectl get node p1-n3 | grep -q NotReady"
run "kubectl get nodes -L apps.openyurt.io/nodepool"
run "kubectl yurt why p1-n3 | head -2"

# shellcheck shell=sh disable=SC2034,SC2154
# What of a node is ours, and how it is changed: read by join and reset, which set program, root, start and dry first.
# Nothing else is ever written to. A file is made in one step, so that a kill or a power cut leaves the old one or the new
# one. What has been made, and what is still to be done, is kept in $notes, so that either script can go on where one ended.

mark="# Made by yurthub's join; its reset removes it."

etc=$root/etc/yurthub
notes=$etc/install
config=$etc/config.yaml
kubeconfig=$etc/kubelet.conf
token=$etc/bootstrap-token
data=$root/var/lib/yurthub
unit=$root/etc/systemd/system/yurthub.service
wanted=$root/etc/systemd/system/multi-user.target.wants/yurthub.service
dropins=$root/etc/systemd/system/kubelet.service.d
dropin=$dropins/20-yurthub.conf

say() { printf '%s\n' "$*"; }

die() {
	printf '%s: %s\n' "$program" "$*" >&2
	exit 1
}

# act does what changes something; in a dry run it says what that would be.
act() {
	if [ -n "$dry" ]; then
		say "would: $*"
	else
		"$@"
	fi
}

# service tells systemd something, where there is a running one.
service() {
	if [ -n "$start" ]; then act systemctl "$@"; fi
}

# ours says whether a file is there and was made by join.
ours() { [ -f "$1" ] && [ "$(head -n 1 "$1")" = "$mark" ]; }

# manifests is the directory of static Pods.
manifests() {
	path=
	if [ -f "$root/var/lib/kubelet/config.yaml" ]; then
		path=$(sed -n 's/^staticPodPath: *"\{0,1\}\([^"]*\)"\{0,1\} *$/\1/p' "$root/var/lib/kubelet/config.yaml")
	fi
	printf '%s' "$root${path:-/etc/kubernetes/manifests}"
}

# half is the name of a file while it is made. kubelet runs every file among its static Pods whose name has no dot first.
half() { printf '%s/.%s.new' "$(dirname "$1")" "$(basename "$1")"; }

# wait_gone waits until kubelet has ended the static Pod: nothing listens at the hub's port any more.
wait_gone() {
	if [ -z "$start" ] || [ -n "$dry" ]; then return; fi
	listens=$(sed -n 's/^port: *"\([0-9]*\)"$/\1/p' "$config" 2>/dev/null || true)
	hex=$(printf '%04X' "${listens:-10261}")
	tries=60
	while cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$hex [0-9A-F:]* 0A "; do
		tries=$((tries - 1))
		if [ $tries = 0 ]; then die "the Pod yurthub does not end; look at it (crictl ps) and run this again"; fi
		sleep 1
	done
}

# note keeps a fact over an interruption, forget takes it back.
note() { act touch "$notes/$1"; }
noted() { [ -e "$notes/$1" ]; }
forget() { act rm -f "$notes/$1"; }

# make_dir makes a directory, and notes first that it is for us to remove.
make_dir() {
	if [ -d "$1" ]; then return; fi
	make_dir "$(dirname "$1")"
	act remember "${1#"$root"}"
	act mkdir -m "$2" "$1"
}

remember() {
	if ! grep -q -x -F -e "$1" "$notes/dirs" 2>/dev/null; then printf '%s\n' "$1" >>"$notes/dirs"; fi
}

# remove_dirs removes the directories that join has made, the deepest first, if nothing else is in them.
remove_dirs() {
	if [ ! -f "$notes/dirs" ]; then return; fi
	sort -r -u "$notes/dirs" >"$notes/dirs.sorted"
	while read -r dir; do
		if [ "$root$dir" = "$data" ] && [ -n "${keep:-}" ]; then continue; fi
		if [ -d "$root$dir" ]; then rmdir "$root$dir" 2>/dev/null || say "$dir is left: something else is in it"; fi
	done <"$notes/dirs.sorted"
}

# is_root: the node's own files are root's. Another directory is whose it is.
is_root() {
	if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then die "must be run as root"; fi
}

# is_systemd: there is one to tell.
is_systemd() {
	if [ -z "$start" ]; then return; fi
	if [ ! -d "$root/run/systemd/system" ] || ! command -v systemctl >/dev/null; then
		die "systemd does not run here, and kubelet is started by something else: see docs/install-node.md for what is to be set"
	fi
}

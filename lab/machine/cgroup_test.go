package machine

import (
	"slices"
	"strings"
	"testing"
)

// hosts are /proc/self/mountinfo as it is, shortened, on different kinds of hosts.
var hosts = map[string]struct {
	mountinfo string
	want      map[string]string // options → path
}{
	"version 2": {
		`22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot`,
		map[string]string{"": "/sys/fs/cgroup"},
	},
	"version 1, co-mounted controllers and a named hierarchy": {
		`25 24 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct
28 25 0:25 / /sys/fs/cgroup/cpuset rw,nosuid shared:13 - cgroup cgroup rw,cpuset,clone_children
29 25 0:26 / /sys/fs/cgroup/pids rw,nosuid - cgroup pids rw,pids`,
		map[string]string{
			"name=systemd": "/sys/fs/cgroup/systemd", "cpu,cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
			"cpuset": "/sys/fs/cgroup/cpuset", "pids": "/sys/fs/cgroup/pids",
		},
	},
	"hybrid": {
		`26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
27 25 0:24 / /sys/fs/cgroup/memory rw,nosuid shared:11 - cgroup cgroup rw,memory`,
		map[string]string{"": "/sys/fs/cgroup/unified", "memory": "/sys/fs/cgroup/memory"},
	},
	"several optional fields": {
		`40 25 0:24 / /sys/fs/cgroup/memory rw shared:11 master:3 propagate_from:2 - cgroup cgroup rw,memory`,
		map[string]string{"memory": "/sys/fs/cgroup/memory"},
	},
	"a controller that we do not know, and lines cut short": {
		`26 25 0:23 / /sys/fs/cgroup/new rw - cgroup cgroup rw,brandnew
27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup
28 25 - cgroup cgroup rw,memory
29 25 0:24 / /sys/fs/cgroup/memory rw,memory cgroup`,
		map[string]string{},
	},
}

func TestParseMount(t *testing.T) {
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			found := 0
			for line := range strings.Lines(host.mountinfo) {
				h, ok := parseMount(strings.TrimSpace(line))
				if !ok {
					continue
				}
				found++
				if path, wanted := host.want[h.options]; !wanted || h.path != path {
					t.Errorf("%q gives %+v, want it at %q", line, h, path)
				}
			}
			if found != len(host.want) {
				t.Errorf("%d hierarchies, want %d", found, len(host.want))
			}
		})
	}
}

func TestUnified(t *testing.T) {
	v2, net, memory, named := hierarchy{}, hierarchy{options: "net_cls"}, hierarchy{options: "memory"},
		hierarchy{options: "name=systemd"}
	for _, test := range []struct {
		name string
		all  []hierarchy
		want bool
		used []hierarchy
	}{
		{"version 2", []hierarchy{v2}, true, []hierarchy{v2}},
		{"version 1", []hierarchy{memory, net, named}, false, []hierarchy{memory, net, named}},
		{"hybrid", []hierarchy{named, memory, v2}, false, []hierarchy{named, memory, v2}},
		{"version 2, and one of version 1 for a VPN client", []hierarchy{v2, net}, true, []hierarchy{v2}},
		{"co-mounted", []hierarchy{v2, {options: "cpu,memory"}}, false, []hierarchy{v2, {options: "cpu,memory"}}},
		{"none that manages memory", []hierarchy{named, net}, true, nil},
	} {
		before := slices.Clone(test.all)
		if got := unified(test.all); got != test.want {
			t.Errorf("%s: unified is %v", test.name, got)
		}
		if got := used(test.all); !slices.Equal(got, test.used) {
			t.Errorf("%s: used %v, want %v", test.name, got, test.used)
		}
		if !slices.Equal(test.all, before) {
			t.Errorf("%s: the list was changed to %v", test.name, test.all)
		}
	}
}

func TestSuits(t *testing.T) {
	for _, test := range []struct {
		name, kind, given string
		says              string // the error; empty: none
	}{
		{"a host", "domain\n", "cpuset cpu io memory hugetlb pids rdma misc\n", ""},
		{"just enough", "domain\n", "memory cpu", ""},
		{"a container whose processes keep the controllers", "domain\n", "\n", "the cpu controller"},
		{"memory is managed by version 1", "domain\n", "cpu pids\n", "the memory controller"},
		{"below a threaded cgroup", "domain invalid\n", "cpu memory\n", "domain invalid"},
	} {
		err := suits("/sys/fs/cgroup", test.kind, test.given)
		if (err == nil) != (test.says == "") || (err != nil && !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want one that says %q", test.name, err, test.says)
		}
	}
}

package join

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/hubtest"
)

const aProxy = "http://" + hubtest.ProxyUser + ":" + hubtest.ProxyPassword + "@proxy.example:3128"

// TestWhichWay: a node gets to the cloud as its kubelet does, unless the command line says otherwise.
func TestWhichWay(t *testing.T) {
	kubeconfig := func(lines string) map[string]string {
		return map[string]string{fileKubeadm: "clusters:\n- cluster:\n    server: https://cloud:6443\n" + lines}
	}
	unit := func(files ...string) map[string]string {
		all := map[string]string{"/etc/systemd/system/kubelet.service.d/proxy.conf": "[Service]\n" + files[0]}
		if len(files) > 1 {
			all["/etc/default/proxies"] = files[1]
		}
		return all
	}
	for name, tt := range map[string]struct {
		config Config
		files  map[string]string
		want   outside
		fails  string
	}{
		"nothing said": {},
		"kubeconfig": {files: kubeconfig("    proxy-url: " + aProxy + "\n    tls-server-name: kubernetes\n"),
			want: outside{proxy: aProxy, serverName: "kubernetes"}},
		"kubeconfig, in quotes": {files: kubeconfig("    proxy-url: \"socks5://proxy\"\n"),
			want: outside{proxy: "socks5://proxy"}},
		"environment": {files: unit("Environment=\"HTTPS_PROXY=http://edge:a%%40b@proxy:3128\" NO_PROXY=10.0.0.0/8,.local\n"),
			want: outside{proxy: "http://edge:a%40b@proxy:3128", except: "10.0.0.0/8,.local"}},
		"environment, two lines": {files: unit("Environment=https_proxy=proxy:3128\nEnvironment=\"no_proxy=a, b\"\n"),
			want: outside{proxy: "proxy:3128", except: "a,b"}},
		"environment, no exceptions": {files: unit("Environment=HTTPS_PROXY=http://proxy:3128\n"),
			want: outside{proxy: "http://proxy:3128", except: "localhost,127.0.0.1"}},
		"a file of the environment": {
			files: unit("EnvironmentFile=-/etc/default/proxies\nEnvironment=NO_PROXY=x\n",
				"# proxies\nHTTPS_PROXY=\""+aProxy+"\"\n"),
			want: outside{proxy: aProxy, except: "x"}},
		"a proxy for http alone": {files: unit("Environment=HTTP_PROXY=http://proxy:3128\n")},
		"command line": {config: Config{ProxyURL: "https://proxy:3129", ServerName: "k", NoProxy: ".local"},
			files: kubeconfig("    proxy-url: " + aProxy + "\n"), want: outside{"https://proxy:3129", ".local", "k"}},
		"command line, none": {config: Config{ProxyURL: "none"}, files: kubeconfig("    proxy-url: " + aProxy + "\n")},
		"a file":             {config: Config{proxy: aProxy}, want: outside{proxy: aProxy}},
		"joined before": {files: map[string]string{fileProxy: aProxy + "\n", fileConfig: "no-proxy: \"10.0.0.0/8\"\n"},
			want: outside{proxy: aProxy, except: "10.0.0.0/8"}},
		"exceptions without a proxy":   {config: Config{NoProxy: ".local"}},
		"a password on a command line": {config: Config{ProxyURL: aProxy}, fails: "--proxy-file"},
		"both":                         {config: Config{ProxyURL: "http://p", proxy: aProxy}, fails: "one of them"},
		"no URL": {config: Config{proxy: "http://" + hubtest.ProxyUser + ":" + hubtest.ProxyPassword + "@p/x y"},
			fails: "no usable URL"},
		"a URL that nobody understands": {files: kubeconfig("    proxy-url: ftp://proxy\n"), fails: "no usable URL"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &facts{files: tt.files}
			for path := range tt.files {
				if strings.HasPrefix(path, "/etc/systemd/") {
					f.units = append(f.units, path)
				}
			}
			got, err := way(&tt.config, f)
			switch {
			case tt.fails == "" && (err != nil || got != tt.want):
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			case tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("%v, want an error with %q", err, tt.fails)
			case err != nil && strings.Contains(err.Error(), hubtest.ProxyPassword):
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// TestAProxyIsTakenOver with its password in a file of root's, which is said nowhere else; and given up again.
func TestAProxyIsTakenOver(t *testing.T) {
	m := newMachine(t)
	m.write("usr/lib/systemd/system/kubelet.service.d/30-proxy.conf",
		"[Service]\nEnvironmentFile=/etc/default/proxies\n")
	m.write("etc/default/proxies", "HTTPS_PROXY="+aProxy+"\nNO_PROXY=10.0.0.0/8\n")
	r := m.works("join", "--start")
	if strings.Contains(r.out, hubtest.ProxyPassword) {
		t.Errorf("the password is told:\n%s", r.out)
	}
	path := filepath.Join(m.root, fileProxy)
	content, err := os.ReadFile(path)
	if err != nil || string(content) != aProxy+"\n" {
		t.Errorf("the proxy's file has %q, %v", content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the proxy's file: %v, %v; want 0600", info.Mode(), err)
	}
	settingsAreAHubs(t, filepath.Join(m.root, fileConfig))
	for path, seen := range m.files() {
		if strings.Contains(seen, hubtest.ProxyPassword) && path != fileProxy && path != "/etc/default/proxies" {
			t.Errorf("the password is in %s", path)
		}
	}
	settings, err := os.ReadFile(filepath.Join(m.root, fileConfig))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"proxy-file: \"/etc/yurthub/proxy\"\n", "no-proxy: \"10.0.0.0/8\"\n"} {
		if !strings.Contains(string(settings), want) {
			t.Errorf("the settings lack %q:\n%s", want, settings)
		}
	}
	m.works("join", "--start", "--proxy-url=none")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the proxy's file is left: %v", err)
	}
	settings, err = os.ReadFile(filepath.Join(m.root, fileConfig))
	if err != nil || strings.Contains(string(settings), "proxy") {
		t.Errorf("the settings still name a proxy: %v\n%s", err, settings)
	}
}

// TestAProxyIsTakenBack: what worked before works again.
func TestAProxyIsTakenBack(t *testing.T) {
	m := newMachine(t)
	m.write("first", aProxy)
	m.works("join", "--start", "--proxy-file="+filepath.Join(m.root, "first"))
	before := m.files()
	m.write("second", "http://nowhere.example:1")
	m.unwell("running")
	if r := m.run("join", 0, "--start", "--wait=0", "--proxy-file="+filepath.Join(m.root, "second")); !r.failed {
		t.Errorf("join works:\n%s", r.out)
	}
	m.remove("second")
	m.same(before, "rolled back")
}

// TestAProxyIsForgotten: after reset, the password is where it was before, and nowhere else.
func TestAProxyIsForgotten(t *testing.T) {
	m := newMachine(t)
	m.write("proxy", aProxy)
	before := m.files()
	m.works("join", "--start", "--proxy-file="+filepath.Join(m.root, "proxy"))
	m.works("reset")
	m.same(before, "reset")
}

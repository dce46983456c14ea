package check

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/hubtest"
)

// TestServerThroughAProxy: the check goes the hub's way, and says whether it is the proxy that fails.
func TestServerThroughAProxy(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	proxy := hubtest.StartProxy(t)
	for name, tt := range map[string]struct {
		file   string
		server string // "" means the cloud
		says   string
	}{
		"reached": {proxy.Address(hubtest.ProxyPassword), "", "is reached through the proxy " + proxy.URL},
		"no proxy": {"http://" + hubtest.ProxyUser + ":" + hubtest.ProxyPassword + "@" + gone.Addr().String(), "",
			"the proxy http://" + gone.Addr().String() + " on the way to"},
		"password":    {proxy.Address("other-" + hubtest.ProxyPassword), "", "does not let this node reach"},
		"not allowed": {proxy.Address(hubtest.ProxyPassword), "https://" + hubtest.ForbiddenHost + ":6443", "403"},
		"no cloud": {proxy.Address(hubtest.ProxyPassword), "https://" + gone.Addr().String(),
			"does not reach https://" + gone.Addr().String()},
		"no URL": {"ftp://proxy", "", "is of no use"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			crt, key := w.ca.issue(t, nil)
			cloud := w.cloud(apiServer, crt, key)
			if tt.server != "" {
				cloud = tt.server
			}
			w.cfg.ProxyFile = hubtest.ProxyFile(t, tt.file)
			s := w.probe(cloud)
			said := fmt.Sprint(Judge(Facts{Settings: w.cfg, Cloud: []Server{s}}))
			if !strings.Contains(said, tt.says) {
				t.Errorf("%s\nwant it to say %q", said, tt.says)
			}
			if strings.Contains(said, hubtest.ProxyPassword) {
				t.Errorf("it tells the password: %s", said)
			}
		})
	}
}

package install

import (
	"strings"
	"time"

	"yurtcoordinator/lab/e2e/kit"
)

var sealedPage = kit.Reading{
	Page: "docs/offline.md", Only: []string{"mkdir", "head", "printf", "systemctl", "rm"},
	Notes: []kit.Note{{Begins: "systemctl restart", Within: 2 * time.Minute}},
}

// sealsItsKey gives the key of the hub's cache to systemd, as the page shows it. The hub then gets the key from systemd, and
// makes no key file.
func (n *installed) sealsItsKey(r *kit.Reader) {
	n.Say("the key of the cache, kept by systemd")
	r.ReadBy(sealedPage, n.typed)
	n.beats("with the key from systemd, kubelet goes through the hub")
	const looks = `hub=$(systemctl show --property=MainPID --value yurthub)
credentials=$(tr '\0' '\n' </proc/$hub/environ | sed -n 's/^CREDENTIALS_DIRECTORY=//p')
nsenter --target $hub --mount stat --format='%s bytes, %a' $credentials/yurthub-cache-key
stat --format='%a' /etc/credstore.encrypted
if cmp --silent $credentials/yurthub-cache-key /etc/credstore.encrypted/yurthub-cache-key; then echo it is in clear; fi
ls /var/lib/yurthub/cache.key 2>&1 || true`
	said := n.typed(looks)
	n.Say("%s", said)
	if !strings.HasPrefix(said, "32 bytes, 400\n700\nls: cannot access") || strings.Contains(said, "in clear") {
		n.Fail("the hub has no key from systemd, or one of its own: %s", said)
	}
	n.goesByHub()
}

package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/e2e/kit"
)

// What pages show of a hub that gets its certificate with a token.
var (
	tokenJoinPage = kit.Reading{Page: "docs/install-node.md", Only: []string{"yurthub join --server-addr"}}
	byHandPage    = kit.Reading{
		Page: "docs/identity.md", Only: []string{"yurthub --node-name"}, Notes: []kit.Note{{Prints: `"client":\{"notBefore"`}},
	}
)

// tokenWords prepares a node that has never joined, and writes a new token for it to a file. It returns the file, and pairs of
// a word in the pages' join commands and the word that replaces it, taken from the command that kubeadm prints.
func (n *installed) tokenWords() (file string, instead []string) {
	n.mustSh("systemctl stop kubelet.service; rm -f /etc/kubernetes/*.conf /var/lib/kubelet/pki/kubelet-client*")
	n.Must(n.Cloud.CoreV1().Nodes().Delete(n.Ctx, n.name, metav1.DeleteOptions{}))
	words := strings.Fields(kubeadm(n.T, "token", "create", "--print-join-command"))
	after := func(flag string) string {
		i := slices.Index(words, flag)
		if i < 0 || i+1 >= len(words) {
			n.Fail("kubeadm prints %q: there is no %s", words, flag)
		}
		return words[i+1]
	}
	file = filepath.Join(n.dir, "token")
	n.Must(os.WriteFile(file, []byte(after("--token")), 0o600))
	server := after("join")
	return file, []string{
		"shop-7-a", n.name, "10.0.0.1:6443", server, "/etc/yurthub/bootstrap-token", file, // docs/identity.md
		"API-SERVER:6443", server, "TOKEN-FILE", file, // docs/install-node.md
		"sha256:…", after("--discovery-token-ca-cert-hash"),
	}
}

// byHand runs a command that does not end, until the hub has a certificate of the cloud's. It prints the hub's status then.
const byHand = ` >hub.log 2>&1 &
hub=$!
trap 'kill $hub || true; wait $hub || true; rm -rf /var/lib/yurthub' EXIT
for i in $(seq 300); do
	said=$(curl --silent --max-time 5 http://127.0.0.1:10267/status || true)
	case $said in (*'"notBefore"'*) echo "$said"; exit;; esac
	kill -0 $hub || break
	sleep 0.1
done
cat hub.log
exit 1`

// runsByHand starts a hub without systemd, as the page shows it: with the token it gets the node's certificate.
func (n *installed) runsByHand(r *kit.Reader, instead []string) {
	page := byHandPage
	page.Instead = instead
	r.ReadBy(page, func(command string) string { return n.typed(command + byHand) })
}

// joinsWithToken makes the node one that has never joined, with a kubelet as from an image, and joins it as the page says.
func (n *installed) joinsWithToken(r *kit.Reader) {
	n.Say("join, with a token")
	file, instead := n.tokenWords()
	n.runsByHand(r, instead)
	page := tokenJoinPage
	page.Instead = instead
	r.ReadBy(page, n.typed)
	r.RunSoon("kubectl label node "+n.name+" "+edge.LabelNodePool+"=p1", time.Minute) // kubelet registers the Node now
	n.beats("kubelet goes through the hub")
	n.goesByHub()
	if _, err := os.Stat(file); err != nil {
		n.Fail("the administrator's own file with the token is gone: %w", err)
	}
}

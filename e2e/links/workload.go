package links

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

// answers expects the Service to answer from a node's own network: kube-proxy, which knows the cloud only through the
// hub, has programmed the node for it. Hollow Pods can't answer.
func answers(t *kit.T, node string) {
	if t.Config.Kubelet != lab.Real || t.Config.NoProxy {
		return
	}
	service, err := t.Cloud.CoreV1().Services(kit.Namespace).Get(t.Ctx, kit.WebName, metav1.GetOptions{})
	t.Must(err)
	url := "http://" + service.Spec.ClusterIP + "/"
	t.Eventually(20*time.Second, "Service "+kit.WebName+" answers on "+node, func() error {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return t.Lab.Dial(ctx, node, address)
			},
		}}
		body, err := kit.Fetch(t.Ctx, client, url)
		if err == nil && !strings.HasPrefix(body, kit.WebName+"-") {
			err = fmt.Errorf("it answers %q", body)
		}
		return err
	})
}

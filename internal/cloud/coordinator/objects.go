package coordinator

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/forwarding"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// Keys of the Secrets.
const (
	keyClientCA    = "client-ca.crt"
	keyKubeletCA   = "kubelet-ca.crt"
	keyPoolNodes   = "nodes" // one per line
	keyDenied      = "denied-users"
	keyAddresses   = "addresses" // one per line
	keyPoolCA      = "pool-ca.crt"
	keyPoolAt      = "pool-addresses" // one per line
	keyKubeletCert = "kubelet-client.crt"
	keyKubeletKey  = "kubelet-client.key"
	keyBundle      = keys.KeyBundle
	keyNextCert    = keys.KeyNextCert
	keyNextKey     = keys.KeyNextKey
	keyKubeconfig  = "kubeconfig"
	keyRequest     = "request.key"
	keyFormer      = "former"
)

const (
	// noUser is the user of the pair that stands in until there is a client certificate for kubelets. Nobody trusts it.
	noUser = "openyurt:not-signed-yet"

	authorityPrefix = "openyurt:coordinator-authority:"
)

// owner is the owner of a pool's objects. They all go with it, even if somebody removes its finalizer.
type owner struct {
	Name string
	UID  types.UID
}

func (o owner) reference() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "YurtCoordinator", Name: o.Name, UID: o.UID,
	}
}

func ownedMeta(namespace, name string, pool edge.PoolName, o owner) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:          map[string]string{labelManagedBy: FieldOwner, edge.LabelNodePool: string(pool)},
		OwnerReferences: []metav1.OwnerReference{o.reference()},
	}
}

// place is where a coordinator runs.
type place struct {
	Pod       string
	UID       types.UID
	Node      edge.NodeName
	Addresses []string // of the node, preferred one first
	CertsHash string   // as the Pod's annotation has it
}

func (p place) server() string {
	return "https://" + net.JoinHostPort(p.Addresses[0], strconv.Itoa(edge.PortCoordinator))
}

// servingRequest returns the request for a coordinator's serving certificate. The certificate names the addresses of the
// coordinator's node, those of the Service, and the coordinator's generation.
func servingRequest(
	pool edge.PoolName, at place, serviceIPs []string, of edge.Generation, lives certs.Lives,
) certs.Request {
	service := edge.ServiceCoordinator
	return certs.Request{
		CommonName: edge.AppCoordinator, SerialNumber: of.String(),
		DNSNames: []string{
			pool.CoordinatorServerName(),
			service, service + "." + edge.NamespaceSystem, service + "." + edge.NamespaceSystem + ".svc",
		},
		IPs:    slices.Concat(at.Addresses, serviceIPs),
		Server: true,
		Life:   lives.Serving,
	}
}

func operatorRequest(pool edge.PoolName, lives certs.Lives) certs.Request {
	return certs.Request{
		CommonName: pool.OperatorUser(), Organizations: []string{edge.GroupOperators},
		Client: true, Life: lives.Operator,
	}
}

// secret returns a Secret that others mount or fetch, keySecret one that they do not.
func secret(name string, data map[string][]byte, annotations map[string]string, pool edge.PoolName, o owner) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: ownedMeta(edge.NamespaceSystem, name, pool, o),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
	s.Annotations = annotations
	return s
}

func keySecret(name string, data map[string][]byte, annotations map[string]string, pool edge.PoolName, o owner) *corev1.Secret {
	s := secret(name, data, annotations, pool, o)
	s.Namespace = edge.NamespaceKeys
	return s
}

// holds reports whether have is already as want says, so that nothing must be written.
func holds(have, want *corev1.Secret) bool {
	return objects.Subset(want.Labels, have.Labels) && objects.Subset(want.Annotations, have.Annotations) &&
		maps.EqualFunc(have.Data, want.Data, bytes.Equal) && slices.Equal(have.OwnerReferences, want.OwnerReferences)
}

func pairIn(s *corev1.Secret, cert, key string) certs.Pair {
	return certs.Pair{Cert: s.Data[cert], Key: s.Data[key]}
}

// digest hashes a Secret's content in the order of its keys.
func digest(data map[string][]byte) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d ", len(k), k, len(data[k]))
		h.Write(data[k])
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// contextOf names the context for the coordinator in a slot, in the operators' kubeconfig. A standby's context has a slash,
// which no pool's name contains. So no two contexts are equal when kubeconfigs of several pools are used together.
func contextOf(pool edge.PoolName, slot edge.Slot) string {
	name := "yurt-coordinator-" + string(pool)
	if slot > 0 {
		name += "/" + strconv.Itoa(int(slot))
	}
	return name
}

// doorContextOf names the operators' context for any coordinator of the pool, by the hub of one node or another.
func doorContextOf(pool edge.PoolName, door int) string {
	name := "yurt-coordinator-" + string(pool) + "/any"
	if door > 0 {
		name += "-" + strconv.Itoa(door+1)
	}
	return name
}

// kubeconfig returns the kubeconfig of a pool's operators. It has a context for each slot whose coordinator's address is known,
// and one for each door. A door is the URL of a hub that passes operators on to a coordinator.
func kubeconfig(pool edge.PoolName, servers, doors []string, bundle []byte, operator certs.Pair) ([]byte, error) {
	user := contextOf(pool, 0)
	config := clientcmdapi.NewConfig()
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: operator.Cert, ClientKeyData: operator.Key,
	}
	for slot, server := range servers {
		if server == "" {
			continue
		}
		name := contextOf(pool, edge.Slot(slot))
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: bundle}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
		config.CurrentContext = cmp.Or(config.CurrentContext, name)
	}
	for i, door := range doors {
		name := doorContextOf(pool, i)
		config.Clusters[name] = &clientcmdapi.Cluster{
			Server: door, TLSServerName: pool.CoordinatorServerName(), CertificateAuthorityData: bundle,
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	}
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of pool %s: %w", pool, err)
	}
	return out, nil
}

// servers returns the URLs of the pool's coordinators by slot. If a coordinator has no node at the moment, its last URL is taken
// from operators, the present kubeconfig of the operators. An empty URL is unknown.
func (f facts) servers(operators []byte) []string {
	servers := make([]string, len(f.At))
	had, err := clientcmd.Load(operators)
	for slot, at := range f.At {
		if at != nil && len(at.Addresses) > 0 {
			servers[slot] = at.server()
		} else if err == nil && had.Clusters[contextOf(f.Pool, edge.Slot(slot))] != nil {
			servers[slot] = had.Clusters[contextOf(f.Pool, edge.Slot(slot))].Server
		}
	}
	return servers
}

// operatorIn returns the client certificate in our kubeconfig; empty if it can't be read.
func operatorIn(text []byte) certs.Pair {
	config, err := clientcmd.Load(text)
	if err != nil {
		return certs.Pair{}
	}
	for _, user := range config.AuthInfos {
		return certs.Pair{Cert: user.ClientCertificateData, Key: user.ClientKeyData}
	}
	return certs.Pair{}
}

// seat is where a slot's coordinator runs, and its generation.
type seat struct {
	place
	Generation edge.Generation
}

// discovery returns the ConfigMap that tells the pool's hubs where their coordinators are. It also has the credential ids of the
// client certificates that coordinators may show to kubelets, the addresses of the pool's nodes, and those of the
// YurtCoordinator's deniedUsers that name a node, a hub or a certificate (deniedHubs).
func discovery(f facts, seats []seat, bundle []byte, clients []string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: ownedMeta(edge.NamespaceSystem, f.Pool.DiscoveryConfigMap(), f.Pool, f.Owner),
		Data: map[string]string{
			edge.DiscoveryServerName: f.Pool.CoordinatorServerName(),
			edge.DiscoveryCA:         string(bundle),
			edge.DiscoveryClients:    string(lines(clients)),
			edge.DiscoveryNodes:      string(lines(f.Addresses)),
			edge.DiscoveryDenied:     string(lines(deniedHubs(f.Denied))),
		},
	}
	for _, s := range seats {
		m.Data[s.Generation.Slot.ServerKey()] = s.server()
		m.Data[s.Generation.Slot.GenerationKey()] = s.Generation.String()
	}
	return m
}

// deniedHubs returns which of the denied users can be hubs and their nodes. Hubs are not told people's names.
func deniedHubs(denied []string) (all []string) {
	for _, who := range denied {
		for _, form := range []string{edge.NodeName("").User(), edge.NodeName("").HubUser(), edge.CertificateIDPrefix} {
			if strings.HasPrefix(who, form) && !strings.Contains(who, " ") {
				all = append(all, who)
			}
		}
	}
	return all
}

// grants returns the RBAC objects of a pool with these nodes. They let the nodes forward heartbeats, and read where their
// coordinators are. The objects name each node, so without nodes they grant nothing.
func grants(pool edge.PoolName, nodes []edge.NodeName, o owner, constrained bool) []client.Object {
	objects := forwarding.Objects(pool, nodes, constrained)
	for _, obj := range objects {
		labels := maps.Clone(obj.GetLabels())
		labels[labelManagedBy] = FieldOwner
		obj.SetLabels(labels)
		obj.SetOwnerReferences([]metav1.OwnerReference{o.reference()})
	}
	meta := ownedMeta(edge.NamespaceSystem, pool.DiscoveryConfigMap(), pool, o)
	rbacMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	role := &rbacv1.Role{TypeMeta: rbacMeta("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{corev1.GroupName}, Resources: []string{"configmaps"},
		ResourceNames: []string{pool.DiscoveryConfigMap()}, Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.RoleBinding{
		TypeMeta: rbacMeta("RoleBinding"), ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	for _, n := range nodes {
		binding.Subjects = append(binding.Subjects,
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: n.User()})
	}
	return append(objects, role, binding)
}

// belongings returns all objects of a pool for deletion: first those that others use.
func belongings(pool edge.PoolName) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}
	}
	all := []client.Object{&corev1.ConfigMap{ObjectMeta: meta(pool.DiscoveryConfigMap())}}
	all = append(all, grants(pool, nil, owner{}, false)...)
	// By then nobody may write a report any more.
	for _, slot := range edge.Slots() {
		all = append(all, reportIn(pool, slot))
	}
	all = append(all, handed(pool.KubeconfigSecret())...)
	for _, slot := range edge.Slots() {
		all = append(all, handed(pool.CoordinatorSecretIn(slot))...)
	}
	for _, name := range keySecrets(pool) {
		all = append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceKeys, Name: name}})
	}
	return all
}

// handed returns what handOut writes, for deletion: the Secret that others read, and what is kept of it.
func handed(name string) (all []client.Object) {
	for _, namespace := range []string{edge.NamespaceSystem, edge.NamespaceKeys} {
		all = append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	return all
}

// reportIn is the report of a slot's leader, for deletion.
func reportIn(pool edge.PoolName, slot edge.Slot) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: pool.ReportLease(slot)},
	}
}

// keySecrets are the names of a pool's Secrets that nobody else reads; the authority's goes last.
func keySecrets(pool edge.PoolName) []string {
	return []string{pool.KubeletClientSecret(), pool.AuthoritySecret()}
}

// toJSON is for comparing: it also sorts the keys of JSON inside, which the API server reorders.
func toJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var plain any
	if err := json.Unmarshal(out, &plain); err != nil {
		return err.Error()
	}
	if out, err = json.Marshal(plain); err != nil {
		return err.Error()
	}
	return string(out)
}

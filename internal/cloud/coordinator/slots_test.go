package coordinator

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// replicas changes how many coordinators a YurtCoordinator asks for.
func (w *world) replicas(name string, n int32) {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	w.get("", name, &c)
	c.Spec.Replicas = ptr.To(n)
	c.Generation++
	w.update(&c)
}

// slots says a pool's coordinators in short, as the status has them: "0 on p1-n1 ready, 1 on p1-n2".
func (w *world) slots(name string) string {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	w.get("", name, &c)
	var all []string
	for _, s := range c.Status.Coordinators {
		text := fmt.Sprintf("%d on %s", s.Slot, s.NodeName)
		if s.Ready {
			text += " ready"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// inSlot checks all that a pool's coordinator in a slot must have, as those see it who use it, and returns its Pod's UID.
func (w *world) inSlot(cr string, pool edge.PoolName, slot edge.Slot, node, ip string) types.UID {
	w.t.Helper()
	pods := w.podsIn(slot)
	if len(pods) != 1 || pods[0].Spec.NodeName != node {
		w.t.Fatalf("slot %d has %d Pods, want one on %s", slot, len(pods), node)
	}
	var mounted, home, operators corev1.Secret
	var hint corev1.ConfigMap
	w.get(edge.NamespaceSystem, pool.CoordinatorSecretIn(slot), &mounted)
	w.get(edge.NamespaceSystem, pool.CoordinatorSecret(), &home)
	w.get(edge.NamespaceSystem, pool.KubeconfigSecret(), &operators)
	w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
	if mounts := pods[0].Spec.Volumes[0].Secret.SecretName; mounts != mounted.Name {
		w.t.Errorf("slot %d mounts %s, not %s", slot, mounts, mounted.Name)
	}
	server := fmt.Sprintf("https://%s:10270", ip)
	cert := w.leaf(pairIn(&mounted, "tls.crt", "tls.key"))
	generation, err := edge.GenerationIn(cert)
	if err != nil || generation.Slot != slot || generation.Number == 0 ||
		hint.Data[slot.ServerKey()] != server || hint.Data[slot.GenerationKey()] != generation.String() {
		w.t.Errorf("slot %d is of generation %v, %v, and hubs are told %v", slot, generation, err, hint.Data)
	}
	roots := poolOfCerts([]byte(hint.Data["ca.crt"]))
	for _, called := range []string{hint.Data["serverName"], ip, serviceIP} {
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: called, Roots: roots, CurrentTime: w.clock.Now()}); err != nil {
			w.t.Errorf("slot %d as %s: %v", slot, called, err)
		}
	}
	if len(cert.IPAddresses) != 2 {
		w.t.Errorf("slot %d has a certificate for %v", slot, cert.IPAddresses)
	}
	if slot > 0 && bytes.Equal(mounted.Data["tls.key"], home.Data["tls.key"]) {
		w.t.Errorf("slot %d has the key of slot 0", slot)
	}
	for _, key := range []string{keyClientCA, keyPoolNodes, keyDenied, keyKubeletCert, keyKubeletKey} {
		if !bytes.Equal(mounted.Data[key], home.Data[key]) {
			w.t.Errorf("slot %d has another %s", slot, key)
		}
	}
	config, err := clientcmd.Load(operators.Data["kubeconfig"])
	if err != nil {
		w.t.Fatal(err)
	}
	at, err := clientcmd.NewNonInteractiveClientConfig(*config, contextOf(pool, slot), nil, nil).ClientConfig()
	if err != nil || at.Host != server || !bytes.Equal(at.CAData, []byte(hint.Data["ca.crt"])) {
		w.t.Fatalf("operators of slot %d: %v, %v", slot, at, err)
	}
	user := w.leaf(certs.Pair{Cert: at.CertData, Key: at.KeyData})
	if user.Subject.CommonName != "openyurt:operator:"+string(pool) {
		w.t.Errorf("operators of slot %d are %v", slot, user.Subject)
	}
	if pods[0].Annotations[annotationCertsHash] != digest(mounted.Data) {
		w.t.Errorf("kubelet has not been told of the Secret of slot %d", slot)
	}
	var c v1alpha1.YurtCoordinator
	w.get("", cr, &c)
	want := v1alpha1.CoordinatorInSlot{
		Slot: int32(slot), NodeName: node, Version: "v0.2.0-k1.0.0", Ready: true, Generation: generation.String(),
	}
	if !slices.ContainsFunc(c.Status.Coordinators, func(is v1alpha1.CoordinatorInSlot) bool {
		return is == want
	}) {
		w.t.Errorf("the status says %+v, not %+v", c.Status.Coordinators, want)
	}
	return pods[0].UID
}

// alone checks that a pool has slot 0 and nothing of any other.
func (w *world) alone(cr string, pool edge.PoolName) {
	w.t.Helper()
	var hint corev1.ConfigMap
	var operators corev1.Secret
	w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
	w.get(edge.NamespaceSystem, pool.KubeconfigSecret(), &operators)
	if keys := slices.Sorted(maps.Keys(hint.Data)); !slices.Equal(keys, []string{
		"ca.crt", "denied", "generation", "kubelet-clients", "nodes", "server", "serverName",
	}) {
		w.t.Errorf("hubs are told %v", keys)
	}
	config, err := clientcmd.Load(operators.Data["kubeconfig"])
	if names := slices.Sorted(maps.Keys(config.Contexts)); err != nil || !slices.Equal(names, []string{
		contextOf(pool, 0), contextOf(pool, 0) + "/any", contextOf(pool, 0) + "/any-2", contextOf(pool, 0) + "/any-3",
	}) || len(config.Clusters) != len(names) {
		w.t.Errorf("operators have %v, %v", config, err)
	}
	for _, slot := range edge.Slots()[1:] {
		if w.get(edge.NamespaceSystem, pool.CoordinatorSecretIn(slot), &corev1.Secret{}) ||
			len(w.podsIn(slot)) > 0 || len(w.deploymentsIn(slot)) > 0 {
			w.t.Errorf("something of slot %d is left", slot)
		}
	}
	if got := w.condition(cr, v1alpha1.YurtCoordinatorStandbysReady); got != "" {
		w.t.Errorf("StandbysReady=%s, though none are asked for", got)
	}
}

const allReadyStandbys = "Pending=False/Deployed CertsReady=True/Issued Ready=True/Serving StandbysReady=True/AllServe on "

func TestReplicas(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(8)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	w.alone("c1", "p1")
	first := w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1")
	var secret, same corev1.Secret
	w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &secret)

	w.replicas("c1", 3)
	w.turns(2)
	if got := w.condition("c1", v1alpha1.YurtCoordinatorStandbysReady); got != "False/"+ReasonNotAllServe {
		t.Errorf("at first: %s", got)
	}
	w.measure("coordinators_missing", `{pool="p1"} 2`)
	w.turns(12)
	if got := w.status("c1"); got != allReadyStandbys+"p1-n1" {
		t.Fatal(got)
	}
	ids := map[types.UID]bool{}
	for i, slot := range edge.Slots() {
		ids[w.inSlot("c1", "p1", slot, fmt.Sprintf("p1-n%d", i+1), fmt.Sprintf("192.0.2.%d", i+1))] = true
	}
	w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &same)
	if !ids[first] || len(ids) != 3 || !bytes.Equal(same.Data["tls.crt"], secret.Data["tls.crt"]) {
		t.Error("slot 0 was made anew")
	}
	w.measure("coordinators_missing", "")
	w.measure("certificates_issued_total", `{kind="authority"} 1
		{kind="kubelet-client"} 1
		{kind="operator"} 1
		{kind="serving"} 3`)
	writes := w.writes
	if w.turns(3); w.writes != writes {
		t.Errorf("%d writes at rest", w.writes-writes)
	}
	if w.restart(); w.writes != 0 {
		t.Fatal(w.writes)
	}
	if w.turns(3); w.writes != 0 {
		t.Errorf("%d writes at a start", w.writes)
	}

	report := reportIn("p1", 2)
	w.create(report)
	w.replicas("c1", 1)
	w.turns(4)
	w.alone("c1", "p1")
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	if w.get(report.Namespace, report.Name, report) {
		t.Error("the report of a slot without a coordinator is left")
	}
	if w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1") != first {
		t.Error("slot 0 was made anew when the others went")
	}
	for _, event := range []string{
		"Normal ServingCertificateIssued For the standby in slot 1 of pool p1 on node p1-n2: there is none",
		"Normal AllServe StandbysReady is true",
		"Normal StandbyRemoved Pool p1 has no coordinator in slot 2 any more",
	} {
		if n := count(w.events, event); n != 1 {
			t.Errorf("%d Events %q in %q", n, event, w.events)
		}
	}

	w.replicas("c1", 2)
	w.turns(8)
	generation := func() string {
		var c v1alpha1.YurtCoordinator
		w.get("", "c1", &c)
		return c.Status.Coordinators[1].Generation
	}
	was := generation()
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	standby := w.podsIn(1)[0]
	w.delete(&standby)
	w.turns(4)
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	before, _ := edge.ParseGeneration(was)
	if after, err := edge.ParseGeneration(generation()); err != nil || !after.Younger(before) {
		t.Errorf("a new Pod is of generation %v, %v, after %v", after, err, before)
	}
	w.delete(&v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
	w.turns(6)
	if got := w.status("c1"); got != "gone" {
		t.Error(got)
	}
	w.nothing("p1")
}

// count says how many of these begin so.
func count(events said, prefix string) (n int) {
	for _, e := range events {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

// TestStandbysKilledAnywhere kills the controller at each write by which a standby comes and goes.
func TestStandbysKilledAnywhere(t *testing.T) {
	kills := 0
	for standbyKilledAt(t, kills+1) {
		kills++
	}
	if kills < 10 {
		t.Errorf("only %d writes for a standby", kills)
	}
	t.Logf("%d kills", kills)
}

func standbyKilledAt(t *testing.T, n int) (killed bool) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	until := func(status string) {
		for i := 0; i < 10 && w.status("c1") != status; i++ {
			w.turns(1)
		}
		w.turns(1)
	}
	until(allReady + "p1-n1")
	w.writes, w.fatal = 0, n
	w.replicas("c1", 2)
	w.turns(1)
	until(allReadyStandbys + "p1-n1")
	w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1")
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	w.replicas("c1", 1)
	w.turns(5)
	w.alone("c1", "p1")
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	if t.Failed() {
		t.Fatalf("killed at write %d", n)
	}
	return w.fatal == 0
}

// TestNoMoreCoordinatorsThanNodes: the highest slots are left out, so that the lower ones find nodes.
func TestNoMoreCoordinatorsThanNodes(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 2)
	w.coordinator("c1", "p1")
	w.replicas("c1", 3)
	w.says("small", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.MinNodes = ptr.To[int32](1) })
	w.turns(10)
	if got := w.slots("c1"); got != "0 on p1-n1 ready, 1 on p1-n2 ready" {
		t.Fatal(got)
	}
	if got := w.condition("c1", v1alpha1.YurtCoordinatorStandbysReady); got != "False/"+ReasonTooFewNodes {
		t.Error(got)
	}
	w.measure("coordinators_missing", `{pool="p1"} 1`)
	w.node("p1", 3)
	w.turns(6)
	if got := w.slots("c1"); got != "0 on p1-n1 ready, 1 on p1-n2 ready, 2 on p1-n3 ready" {
		t.Fatal(got)
	}
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "p1-n1"}}) // and its Pod with it
	gone := w.podsIn(0)[0]
	w.delete(&gone)
	w.turns(8)
	if got := w.slots("c1"); got != "0 on p1-n3 ready, 1 on p1-n2 ready" {
		t.Error(got)
	}
	if w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecretIn(2), &corev1.Secret{}) {
		t.Error("the Secret of slot 2 is left")
	}
}

// TestAStandbyTakesOver: while slot 0 has no node, the pool is Ready, and both hubs and operators know where each was.
func TestAStandbyTakesOver(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	for _, n := range []string{"p1-n1", "p1-n2", "p1-n3"} {
		w.ready(n, true)
	}
	w.coordinator("c1", "p1")
	w.replicas("c1", 2)
	w.turns(10)
	var before, after corev1.ConfigMap
	w.get(edge.NamespaceSystem, edge.PoolName("p1").DiscoveryConfigMap(), &before)
	w.schedules = false
	dead := w.podsIn(0)[0]
	w.delete(&dead)
	w.turns(3)
	want := "Pending=False/Deployed CertsReady=True/Issued Ready=True/Serving StandbysReady=False/NotAllServe on p1-n2"
	if got := w.status("c1"); got != want {
		t.Error(got)
	}
	if got := w.slots("c1"); got != "0 on , 1 on p1-n2 ready" {
		t.Error(got)
	}
	w.get(edge.NamespaceSystem, edge.PoolName("p1").DiscoveryConfigMap(), &after)
	if !maps.Equal(before.Data, after.Data) || after.Data["server"] != "https://192.0.2.1:10270" {
		t.Errorf("hubs were told %v, and now %v", before.Data, after.Data)
	}
	var operators corev1.Secret
	w.get(edge.NamespaceSystem, edge.PoolName("p1").KubeconfigSecret(), &operators)
	if config, err := clientcmd.Load(operators.Data["kubeconfig"]); err != nil || len(config.Contexts) != 5 ||
		config.CurrentContext != "yurt-coordinator-p1" {
		t.Errorf("operators have %v, %v", config, err)
	}
	w.schedules = true
	w.turns(5)
	w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1")

	// A coordinator leaves a dead node only for one that has no other.
	w.ready("p1-n1", false)
	w.turns(1)
	w.ready("p1-n2", true) // is heard from, and has the standby
	w.turns(3)
	w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1")
	w.ready("p1-n3", true)
	w.turns(6)
	w.inSlot("c1", "p1", 0, "p1-n3", "192.0.2.3")
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	if len(w.r.vigils) != 0 {
		t.Error("a vigil goes on")
	}
}

// TestAStandbysNodeLeaves its pool: the standby moves, and nothing else does.
func TestAStandbysNodeLeaves(t *testing.T) {
	w := stationed(t, 4)
	w.replicas("c1", 2)
	w.turns(10)
	home := w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1")
	w.joins("p1-n2", "p2")
	w.denies("ana")
	w.turns(2)
	want := "Pending=False/Deployed CertsReady=True/Issued Ready=True/Serving StandbysReady=False/NotAllServe on p1-n1"
	says := w.message("c1", v1alpha1.YurtCoordinatorStandbysReady)
	if got := w.status("c1"); got != want || !strings.Contains(says, "pool p2") {
		t.Errorf("%s: %s", got, says)
	}
	var mounted corev1.Secret
	w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecretIn(1), &mounted)
	if string(mounted.Data[keyDenied]) != "ana\n" {
		t.Errorf("%q are denied at the standby", mounted.Data[keyDenied])
	}
	w.ready("p1-n3", true)
	w.turns(6)
	if w.inSlot("c1", "p1", 0, "p1-n1", "192.0.2.1") != home {
		t.Error("the coordinator moved, too")
	}
	w.inSlot("c1", "p1", 1, "p1-n3", "192.0.2.3")
}

// TestBothNodesLeaveAtOnce: of two coordinators that serve on nodes of another pool, one serves at any time.
func TestBothNodesLeaveAtOnce(t *testing.T) {
	w := stationed(t, 4)
	w.replicas("c1", 2)
	w.turns(10)
	w.joins("p1-n1", "p2")
	w.joins("p1-n2", "p2")
	for range 20 {
		w.ready("p1-n3", true)
		w.ready("p1-n4", true)
		if err := w.round(); err != nil {
			t.Fatal(err)
		}
		served := 0
		for slot := range edge.Slot(2) {
			for _, p := range w.podsIn(slot) {
				if serves(&p) {
					served++
				}
			}
		}
		if served == 0 {
			t.Fatal("none serves")
		}
		w.passes()
	}
	at := []string{w.podsIn(0)[0].Spec.NodeName, w.podsIn(1)[0].Spec.NodeName}
	if slices.Sort(at); !slices.Equal(at, []string{"p1-n3", "p1-n4"}) {
		t.Errorf("they are on %q", at)
	}
}

// TestAStandbyThatCantBeRemoved is named in the status until it is.
func TestAStandbyThatCantBeRemoved(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.replicas("c1", 2)
	w.turns(10)
	w.keeps = edge.PoolName("p1").CoordinatorSecretIn(1)
	w.replicas("c1", 1)
	for range 4 {
		_ = w.round()
		w.passes()
	}
	if got := w.slots("c1"); got != "0 on p1-n1 ready, 1 on " {
		t.Errorf("the status says %q", got)
	}
	if got := w.condition("c1", v1alpha1.YurtCoordinatorCertsReady); got != "Unknown/"+ReasonReconcileError {
		t.Error(got)
	}
	w.keeps = ""
	w.turns(3)
	w.alone("c1", "p1")
	if got := w.slots("c1"); got != "0 on p1-n1 ready" {
		t.Errorf("the status says %q", got)
	}
}

// TestReplicasOfSettings: what a YurtCoordinator says itself comes first, and nothing changes while changes are held.
// TestAStandbyThatStaysForNow serves, so it is told what changes until it goes.
func TestAStandbyThatStaysForNow(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.replicas("c1", 2)
	w.turns(12)
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	w.holds = true
	w.replicas("c1", 1)
	w.turns(2)
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	c.Spec.DeniedUsers = []string{"ana"}
	w.update(&c)
	w.turns(3)
	w.inSlot("c1", "p1", 1, "p1-n2", "192.0.2.2")
	var mounted corev1.Secret
	w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecretIn(1), &mounted)
	if got := string(mounted.Data[keyDenied]); !strings.Contains(got, "ana") {
		t.Errorf("it denies %q", got)
	}
	w.holds = false
	w.turns(4)
	w.alone("c1", "p1")
}

func TestReplicasOfSettings(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Replicas = ptr.To[int32](2) })
	w.turns(10)
	if got := w.slots("c1"); got != "0 on p1-n1 ready, 1 on p1-n2 ready" {
		t.Fatal(got)
	}
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.ExtraArgs = []string{"--v=5"} }) // it has a field
	for _, n := range []int32{3, 1} {
		w.replicas("c1", n)
		w.turns(6)
		if got := w.slots("c1"); got != "0 on p1-n1 ready, 1 on p1-n2 ready" {
			t.Errorf("with settings that can't be used, and %d: %s", n, got)
		}
	}
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.ExtraArgs = nil })
	w.turns(6)
	w.alone("c1", "p1")
}

// TestTheSpecsOfSlots: slot 0 is as it was before there were standbys, so that nothing is replaced for them.
func TestTheSpecsOfSlots(t *testing.T) {
	config := Config{Program: Program{Image: image, Release: "v1.0.0", Kubernetes: "v1.36.3"}}.completed()
	for _, slot := range edge.Slots() {
		spec := podSpec(config, slot, Asked{Settings: manySettings()})
		keepsOff := spec.Affinity.PodAntiAffinity
		template := template(config, slot)
		label := template.Spec.Template.Labels[edge.LabelSlot]
		if slot == 0 {
			if keepsOff != nil || label != "" || len(template.Spec.Selector.MatchLabels) != 1 || len(template.Labels) != 2 ||
				podSpec(config, 0, Asked{}).Affinity.PodAntiAffinity != nil {
				t.Errorf("slot 0 is another: %+v, %+v", keepsOff, template)
			}
			continue
		}
		if keepsOff == nil || len(keepsOff.RequiredDuringSchedulingIgnoredDuringExecution) != 1 ||
			keepsOff.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey != "kubernetes.io/hostname" ||
			spec.Affinity.NodeAffinity == nil {
			t.Errorf("slot %d: %+v", slot, spec.Affinity)
		}
		if label != fmt.Sprint(int(slot)) || template.Spec.Selector.MatchLabels[edge.LabelSlot] != label ||
			template.Labels[edge.LabelSlot] != label {
			t.Errorf("slot %d: %+v", slot, template)
		}
		if got := spec.Volumes[0].Secret.SecretName; got != fmt.Sprintf("yurt-coordinator--%d-{{nodepool-name}}-certs", slot) {
			t.Errorf("slot %d mounts %s", slot, got)
		}
	}
}

func TestAssignToSlots(t *testing.T) {
	pod := func(name, slot string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelSlot: slot}}}
		if slot == "" {
			p.Labels = nil
		}
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "ours", Controller: ptr.To(true),
		}}
		p.Spec.NodeName = "on-" + name
		return p
	}
	pods := []corev1.Pod{pod("a", ""), pod("b", "1"), pod("x", "3"), pod("y", "one"), pod("z", "-1")}
	c := assign(pods)
	is := func(slot edge.Slot, name string) bool { return c.current[slot] != nil && c.current[slot].Name == name }
	if !is(0, "a") || !is(1, "b") || c.current[2] != nil || len(c.made) != 5 {
		t.Errorf("%+v", c.current)
	}
}

// TestStandbysAgainstAnAPIServer: with the rights that the chart gives, and as the API server takes what is applied.
func TestStandbysAgainstAnAPIServer(t *testing.T) {
	k := newCluster(t)
	k.makePool("twice", 3)
	k.runPod("twice", "home", 1)
	k.sign("twice")
	k.eventually("twice", allReady+"twice-n1")
	ask := func(n int32) {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
		k.must(k.c.Patch(t.Context(), &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "twice"}},
			client.RawPatch(types.MergePatchType, patch)))
	}
	ask(2)
	standby := k.runPodIn(1, "twice", "standby", 2)
	k.eventually("twice", allReadyStandbys+"twice-n1")
	if standby.Labels[edge.LabelSlot] != "1" || standby.Spec.Volumes[0].Secret.SecretName != "yurt-coordinator--1-twice-certs" ||
		len(standby.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 ||
		standby.Spec.NodeSelector[edge.LabelNodePool] != "twice" {
		t.Errorf("%s", toJSON(standby))
	}
	for slot, selects := range map[edge.Slot]int{0: 2, 1: 3} {
		var d appsv1.Deployment
		if k.is(edge.NamespaceSystem, slot.App()+"-twice", &d); len(d.Spec.Selector.MatchLabels) != selects {
			t.Errorf("the Deployment of slot %d selects %v", slot, d.Spec.Selector.MatchLabels)
		}
	}
	var hint corev1.ConfigMap
	k.is(edge.NamespaceSystem, "yurt-coordinator-twice", &hint)
	if hint.Data["server"] != "https://192.0.2.1:10270" || hint.Data["server-1"] != "https://192.0.2.2:10270" {
		t.Error(hint.Data)
	}
	var service corev1.Service
	k.is(edge.NamespaceSystem, edge.ServiceCoordinator, &service)
	if service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		t.Error(service.Spec)
	}

	ask(1)
	cloudtest.Eventually(t, "Deployment of the standby gone", func() error {
		if k.is(edge.NamespaceSystem, "yurt-coordinator--1-twice", &appsv1.Deployment{}) {
			return errors.New("it is there")
		}
		return nil
	})
	k.must(k.c.Delete(t.Context(), standby, client.GracePeriodSeconds(0))) // the collector of garbage is not there
	k.eventually("twice", allReady+"twice-n1")
	cloudtest.Eventually(t, "nothing of the standby", func() error {
		k.is(edge.NamespaceSystem, "yurt-coordinator-twice", &hint)
		_, told := hint.Data["server-1"]
		if told || k.is(edge.NamespaceSystem, "yurt-coordinator--1-twice-certs", &corev1.Secret{}) {
			return fmt.Errorf("hubs are told %v, or the Secret is left", hint.Data)
		}
		return nil
	})
}

// TestDoors: operators reach a coordinator that lives by the hub of any node, by the coordinators' name.
func TestDoors(t *testing.T) {
	node := func(name string, addresses ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n
	}
	nodes := []corev1.Node{
		node("n5", "192.0.2.5"), node("n2", "169.254.0.1", "2001:db8::2", "192.0.2.2"), node("n1"), node("n4", "192.0.2.4"),
		node("n3", "192.0.2.3"),
	}
	doors := doorsOf(nodes)
	want := []string{"https://[2001:db8::2]:10269", "https://192.0.2.3:10269", "https://192.0.2.4:10269"}
	if !slices.Equal(doors, want) {
		t.Errorf("%v, want %v", doors, want)
	}
	key, err := certs.SelfSigned("x", time.Hour, start)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kubeconfig("p", []string{"", "https://192.0.2.9:10270"}, doors, key.Cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(text)
	if err != nil || config.CurrentContext != "yurt-coordinator-p/1" || len(config.Contexts) != 4 || len(config.AuthInfos) != 1 {
		t.Fatalf("%v, %s", err, text)
	}
	for i, door := range doors {
		is := config.Clusters[config.Contexts[doorContextOf("p", i)].Cluster]
		if is.Server != door || is.TLSServerName != edge.PoolName("p").CoordinatorServerName() ||
			!bytes.Equal(is.CertificateAuthorityData, key.Cert) {
			t.Errorf("door %d is %+v", i, is)
		}
	}
}

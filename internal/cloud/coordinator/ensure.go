package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition CertsReady.
const (
	// ReasonIssued: all certificates exist.
	ReasonIssued = "Issued"
	// ReasonNotScheduled: the Pod has no node yet, so the address for its certificate is unknown.
	ReasonNotScheduled = "NotScheduled"
	// ReasonNoNodeAddress: the Node's status has no internal address.
	ReasonNoNodeAddress = "NoNodeAddress"
	// ReasonNoServiceAddress: the Service has no address yet.
	ReasonNoServiceAddress = "NoServiceAddress"
	// ReasonNoClientAuthority: the cluster does not say which authority it verifies nodes with.
	ReasonNoClientAuthority = "NoClientAuthority"
	// ReasonKubeletClientNotSigned: only the client certificate for kubelets is missing.
	ReasonKubeletClientNotSigned = "KubeletClientNotSigned"
	// ReasonReconcileError, also of the condition Ready: something failed that is tried again, and the message has the error.
	ReasonReconcileError = "ReconcileError"
)

// standInLife is the life of the pair that stands in for the client certificate for kubelets.
const standInLife = 10 * 365 * 24 * time.Hour

// facts are all inputs of a pool's objects, besides the time and the existing objects.
type facts struct {
	Owner      owner
	Pool       edge.PoolName
	Nodes      []edge.NodeName // in order
	Addresses  []string        // of these nodes, in order
	Doors      []string        // where hubs pass operators on to a coordinator
	Denied     []string        // whose certificates hold no longer
	At         []*place        // of its coordinators by their slots; nil until one has a node
	ServiceIPs []string
	ClientCA   []byte
	KubeletCA  []byte // empty means that no authority verifies kubelets
	Rekey      string // when it changes, the key for kubelets is replaced
}

// sum is a hash of f. It leaves out the annotation that kubelet sees: that it was sent is no change.
func (f facts) sum() [sha256.Size]byte {
	f.At = slices.Clone(f.At)
	for slot, at := range f.At {
		if at != nil {
			same := *at
			same.CertsHash = ""
			f.At[slot] = &same
		}
	}
	return sha256.Sum256([]byte(toJSON(f)))
}

// finding is the status of a condition. Unknown says that it could not be found out, whatever OK says.
type finding struct {
	OK, Unknown     bool
	Reason, Message string
}

// outcome is the result for a pool's objects, and until when it holds.
type outcome struct {
	finding
	again time.Time
	// generations are those of the coordinators that have a certificate, by their slots.
	generations [edge.MaxSlots]edge.Generation
}

// lacking returns what a certificate still needs and nobody knows yet.
func (f facts) lacking(slot edge.Slot) *finding {
	at := f.At[slot]
	switch {
	case at == nil:
		return &finding{Reason: ReasonNotScheduled, Message: "The coordinator's Pod has no node yet, so it has no address."}
	case len(at.Addresses) == 0:
		return &finding{Reason: ReasonNoNodeAddress, Message: fmt.Sprintf(
			"Node %s has no address of type InternalIP in its status. See its kubelet's --node-ip.", at.Node)}
	case len(f.ServiceIPs) == 0:
		return &finding{Reason: ReasonNoServiceAddress, Message: fmt.Sprintf(
			"Service %s/%s has no address yet.", edge.NamespaceSystem, edge.ServiceCoordinator)}
	case len(certs.Certificates(f.ClientCA)) == 0:
		return &finding{Reason: ReasonNoClientAuthority, Message: fmt.Sprintf(
			"ConfigMap %s/%s has no %s, which verifies nodes: start kube-apiserver with --client-ca-file.",
			edge.NamespaceSystem, authenticationConfig, clientCAKey)}
	}
	return nil
}

// ensure makes the objects of a pool. It may run any number of times, and may be interrupted anywhere.
func (r *Reconciler) ensure(ctx context.Context, f facts, had given) (outcome, given, error) {
	authority, again, err := r.authority(ctx, f)
	if r.metrics.tried(kindAuthority, err) != nil {
		return outcome{}, given{}, err
	}
	mounted, noted := make([]*corev1.Secret, len(f.At)), ""
	for slot := range mounted {
		mounted[slot], err = r.handedOut(ctx, f.Pool.CoordinatorSecretIn(edge.Slot(slot)))
		if r.metrics.tried(kindServing, err) != nil {
			return outcome{}, given{}, err
		}
		noted = cmp.Or(noted, mounted[slot].Annotations[annotationGranted])
	}
	had, err = r.grant(ctx, f, had, noted)
	if err != nil {
		return outcome{}, given{}, err
	}
	kubelets, err := r.kubeletClient(ctx, f)
	if err != nil {
		return outcome{}, given{}, err
	}
	again = soonestOf(again, kubelets.again)
	done := outcome{again: again}
	done.finding = finding{OK: true, Reason: ReasonIssued, Message: "The coordinator has its certificates."}
	var seats []seat
	for slot, at := range f.At {
		slot := edge.Slot(slot)
		if lacks := f.lacking(slot); lacks != nil {
			// The finding is what the first coordinator with a node lacks. If none has a node, it is what slot 0 lacks.
			if done.OK && at != nil {
				done.finding = inSlot(slot, *lacks)
			}
			continue
		}
		generation, servingAgain, err := r.serving(ctx, f, slot, authority, kubelets.Shown, mount{mounted[slot], had.digest})
		if r.metrics.tried(kindServing, err) != nil {
			return outcome{}, given{}, err
		}
		done.generations[slot], done.again = generation, soonestOf(done.again, servingAgain)
		seats = append(seats, seat{*at, generation})
	}
	if len(seats) == 0 && done.OK {
		done.finding = *f.lacking(0)
	}
	if len(seats) == 0 && noted == "" { // no coordinator has had a node yet
		return done, had, nil
	}
	operatorAgain, err := r.operator(ctx, f, authority)
	if r.metrics.tried(kindOperator, err) != nil {
		return outcome{}, given{}, err
	}
	told := discovery(f, seats, authority.Trusted, kubelets.ids())
	if err := r.publish(ctx, told, edge.Slot(len(f.At))); err != nil {
		return outcome{}, given{}, err
	}
	done.again = soonestOf(done.again, operatorAgain)
	if done.OK && kubelets.whyNot != "" {
		done.finding = finding{Reason: ReasonKubeletClientNotSigned, Message: kubelets.whyNot +
			" Until then the coordinator works, except for kubectl logs, exec, attach and port-forward."}
	}
	return done, had, nil
}

// inSlot says of which coordinator a finding is: of slot 0 if nothing else is said.
func inSlot(slot edge.Slot, f finding) finding {
	if slot > 0 {
		f.Message = fmt.Sprintf("Standby in slot %d: %s", slot, f.Message)
	}
	return f
}

func soonestOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// grant applies the RBAC objects that a pool needs, and returns what is granted. It writes nothing if their digest equals
// had.digest and had.again has not come. After a start of this program had is empty. Then grant writes nothing if their digest
// equals noted, which was stored in a coordinator's Secret.
func (r *Reconciler) grant(ctx context.Context, f facts, had given, noted string) (given, error) {
	objects, now := grants(f.Pool, f.Nodes, f.Owner, r.cfg.ConstrainedImpersonation), r.cfg.Clock.Now()
	is := given{digest(map[string][]byte{"grants": []byte(toJSON(objects))}), r.resync(now)}
	switch {
	case had.digest == is.digest && now.Before(had.again):
		return had, nil
	case had.digest == "" && noted == is.digest:
		return is, nil
	}
	for _, obj := range objects {
		if err := r.apply(ctx, obj); err != nil {
			return given{}, err
		}
	}
	return is, nil
}

// publish writes the ConfigMap that says where a pool's coordinators are, if it has changed. It reads the present one first,
// because a read costs the API server a tenth of a write. For a slot whose address is unknown at the moment, the last address
// stays, because the coordinator may still run there.
func (r *Reconciler) publish(ctx context.Context, want *corev1.ConfigMap, slots edge.Slot) error {
	var have corev1.ConfigMap
	err := client.IgnoreNotFound(r.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(want), &have))
	for _, slot := range edge.Slots()[:slots] {
		if _, placed := want.Data[slot.ServerKey()]; placed {
			continue
		}
		for _, key := range []string{slot.ServerKey(), slot.GenerationKey()} {
			if was, ok := have.Data[key]; ok {
				want.Data[key] = was
			}
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", objects.Describe(want), err)
	case !slices.ContainsFunc(edge.Slots(), func(s edge.Slot) bool { return want.Data[s.ServerKey()] != "" }):
		return nil // a hub could not use it
	case maps.Equal(have.Data, want.Data) && objects.Subset(want.Labels, have.Labels) &&
		slices.Equal(have.OwnerReferences, want.OwnerReferences):
		return nil
	}
	return r.apply(ctx, want)
}

// authority keeps the pool's authority, and writes it before anything that it signs.
func (r *Reconciler) authority(ctx context.Context, f facts) (certs.Authority, time.Time, error) {
	have, err := keys.Get(ctx, r.cfg.Reader, f.Pool.AuthoritySecret())
	if err != nil {
		return certs.Authority{}, time.Time{}, err
	}
	a, now := keys.AuthorityIn(have), r.cfg.Clock.Now()
	step, why, again := a.Plan(r.cfg.Lives.Settle, now)
	if step != certs.StepNone {
		a, err = a.Take(step, authorityPrefix+string(f.Pool), r.cfg.Lives.Authority, now)
		if err != nil {
			return certs.Authority{}, time.Time{}, fmt.Errorf("authority of pool %s: %w", f.Pool, err)
		}
		again = now // another step may be due
	}
	want := keySecret(f.Pool.AuthoritySecret(), keys.AuthorityData(a), nil, f.Pool, f.Owner)
	if err := r.keep(ctx, have, want); err != nil {
		return certs.Authority{}, time.Time{}, err
	}
	r.metrics.holds(certOf{name: f.Owner.Name, kind: kindAuthority}, a.Pair)
	if step == certs.StepReplace || step == certs.StepAdd {
		r.metrics.made(kindAuthority)
	}
	if step != certs.StepNone {
		r.told(ctx, f.Owner, "Authority"+string(step), "Certificate authority of pool %s: %s", f.Pool, why)
	}
	return a, again, nil
}

// mount is a coordinator's present Secret, and the digest of granted rights to store in it.
type mount struct {
	have    *corev1.Secret
	granted string
}

// serving keeps up to date the Secret that the coordinator's Pod mounts. A new Pod gets a new serving certificate. The Secret
// also holds the client certificate for kubelets, the parameter shown; a zero pair means that there is none yet.
func (r *Reconciler) serving(
	ctx context.Context, f facts, slot edge.Slot, a certs.Authority, shown certs.Pair, m mount,
) (generation edge.Generation, again time.Time, err error) {
	have, now, at := m.have, r.cfg.Clock.Now(), *f.At[slot]
	isNew := have.Annotations[annotationPod] != string(at.UID)
	generation = generationOf(have, slot, isNew, now)
	request := servingRequest(f.Pool, at, f.ServiceIPs, generation, r.cfg.Lives)
	pair := pairIn(have, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	why, again := request.Plan(pair, a.Trusted, now)
	if why == "" && isNew {
		why = "the Pod is new"
	}
	if why != "" {
		if pair, err = a.Sign(request, now); err != nil {
			return edge.Generation{}, time.Time{}, fmt.Errorf("serving certificate of pool %s: %w", f.Pool, err)
		}
		_, again = request.Plan(pair, a.Trusted, now)
	}
	kubelet, err := standIn(shown, pairIn(have, keyKubeletCert, keyKubeletKey), now)
	if err != nil {
		return edge.Generation{}, time.Time{}, err
	}
	data := map[string][]byte{
		corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key,
		keyClientCA:    certs.Bundle(f.ClientCA, a.Trusted),
		keyKubeletCert: kubelet.Cert, keyKubeletKey: kubelet.Key,
		keyPoolNodes: lines(f.Nodes), keyDenied: lines(f.Denied), keyAddresses: lines(at.Addresses),
		keyPoolCA: a.Trusted, keyPoolAt: lines(f.Addresses),
	}
	if len(f.KubeletCA) > 0 {
		data[keyKubeletCA] = f.KubeletCA
	}
	annotations := map[string]string{annotationPod: string(at.UID), annotationGranted: m.granted,
		annotationGeneration: generation.String()}
	if err := r.handOut(ctx, have, secret(f.Pool.CoordinatorSecretIn(slot), data, annotations, f.Pool, f.Owner)); err != nil {
		return edge.Generation{}, time.Time{}, err
	}
	r.metrics.holds(certOf{f.Owner.Name, kindServing, slot}, pair)
	if why != "" {
		r.metrics.made(kindServing)
		r.told(ctx, f.Owner, "ServingCertificateIssued", "For the %s of pool %s on node %s: %s",
			called(slot), f.Pool, at.Node, why)
	}
	return generation, again, r.nudge(ctx, at, digest(data))
}

// generationOf returns the generation of a slot's coordinator. have is the coordinator's Secret, which stores the last
// generation. A Pod that is not new keeps that one. A new Pod gets the next number, or the Unix time in seconds if that is
// greater, so that the number grows even if the Secret was lost.
func generationOf(have *corev1.Secret, slot edge.Slot, isNew bool, now time.Time) edge.Generation {
	last, err := edge.ParseGeneration(have.Annotations[annotationGeneration])
	if err != nil || last.Slot != slot {
		last = edge.Generation{Slot: slot}
	}
	if last.Number != 0 && !isNew {
		return last
	}
	return edge.Generation{Slot: slot, Number: max(last.Number+1, uint64(max(now.Unix(), 0)))}
}

// standIn returns want, the pair to show to kubelets. If want is zero, it returns a self-signed pair that nobody trusts, because
// a coordinator does not start without a pair. If have already is such a self-signed pair, standIn returns have.
func standIn(want, have certs.Pair, now time.Time) (certs.Pair, error) {
	if !want.IsZero() {
		return want, nil
	}
	if certs.CheckClient(have, noUser, now) == nil {
		return have, nil
	}
	return certs.SelfSigned(noUser, standInLife, now)
}

// called says which coordinator is meant.
func called(slot edge.Slot) string {
	if slot == 0 {
		return "coordinator"
	}
	return fmt.Sprintf("standby in slot %d", slot)
}

// nudge makes kubelet read a Pod's Secret now instead of within a minute or so.
func (r *Reconciler) nudge(ctx context.Context, at place, hash string) error {
	if at.CertsHash == hash {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": at.UID, "annotations": map[string]string{annotationCertsHash: hash},
	}})
	if err != nil {
		return fmt.Errorf("patch of Pod %s: %w", at.Pod, err)
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = edge.NamespaceSystem, at.Pod
	err = r.cfg.Client.Patch(ctx, pod, client.RawPatch(mergePatch, patch), client.FieldOwner(FieldOwner))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("annotate Pod %s: %w", at.Pod, err)
	}
	return nil
}

// operator keeps the operators' kubeconfig.
func (r *Reconciler) operator(ctx context.Context, f facts, a certs.Authority) (again time.Time, err error) {
	name := f.Pool.KubeconfigSecret()
	have, err := r.handedOut(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	now := r.cfg.Clock.Now()
	request := operatorRequest(f.Pool, r.cfg.Lives)
	pair := operatorIn(have.Data[keyKubeconfig])
	why, again := request.Plan(pair, a.Trusted, now)
	if why != "" {
		if pair, err = a.Sign(request, now); err != nil {
			return time.Time{}, fmt.Errorf("operators' certificate of pool %s: %w", f.Pool, err)
		}
		_, again = request.Plan(pair, a.Trusted, now)
	}
	text, err := kubeconfig(f.Pool, f.servers(have.Data[keyKubeconfig]), f.Doors, a.Trusted, pair)
	if err != nil {
		return time.Time{}, err
	}
	data := map[string][]byte{keyKubeconfig: text}
	if err := r.handOut(ctx, have, secret(name, data, nil, f.Pool, f.Owner)); err != nil {
		return time.Time{}, err
	}
	r.metrics.holds(certOf{name: f.Owner.Name, kind: kindOperator}, pair)
	if why != "" {
		r.metrics.made(kindOperator)
	}
	return again, nil
}

func lines[S ~string](names []S) []byte {
	var text []byte
	for _, n := range names {
		text = append(append(text, n...), '\n')
	}
	return text
}

// sorted returns names in order, each only once.
func sorted(names []edge.NodeName) []edge.NodeName {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

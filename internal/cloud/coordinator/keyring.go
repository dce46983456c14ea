package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// keyring has the client certificates with which a pool's coordinators call kubelets. After a third of a certificate's life, its
// successor is made and announced to the pool's hubs. Half-way through the life, the coordinator begins to show the successor to
// kubelets. A hub that reaches the cloud between these two times knows the successor by then. Both certificates stay valid until
// they expire, because a coordinator or a hub may be cut off meanwhile.
//
// The pool's hubs are told all certificates of the keyring and accept no others, so there is no list of withdrawn certificates.
type keyring struct {
	// Shown is what the coordinator shows to kubelets, Next its successor. Each may be zero.
	Shown, Next certs.Pair
	// Request is the key of the certificate that is being asked for; empty means that none is.
	Request []byte
	// Former are still valid, because a coordinator that has not heard of its new certificate shows an old one.
	Former []former
	// Rekey is the YurtCoordinator's spec.rekey for which all of this was made.
	Rekey string
}

// former is a certificate whose key is no longer here.
type former struct {
	ID   string
	Ends time.Time
}

// turn returns the keyring as it must be at the time now: without what has expired, and with the successor in use if its time has
// come. If rekey differs from k.Rekey, turn drops all keys. why says why a new certificate must be requested; empty means that
// none is needed. again is when to call turn again.
func (k keyring) turn(user, rekey string, now time.Time) (_ keyring, why string, again time.Time) {
	if k.Rekey != rekey {
		return keyring{Rekey: rekey}, "the key is to be replaced", now
	}
	k.Former = slices.DeleteFunc(slices.Clone(k.Former), func(f former) bool { return !now.Before(f.Ends) })
	if certs.CheckClient(k.Next, user, now) != nil {
		k.Next = certs.Pair{}
	}
	why = "there is none"
	if !k.Shown.IsZero() {
		if err := certs.CheckClient(k.Shown, user, now); err != nil {
			k.Shown, why = certs.Pair{}, err.Error()
		}
	}
	switch {
	case k.Shown.IsZero():
		k.Shown, k.Next = k.Next, certs.Pair{}
	case !k.Next.IsZero() && !now.Before(k.Shown.Part(1, 2)):
		k.Former = append(k.Former, former{k.Shown.CredentialID(), k.Shown.Part(1, 1)})
		k.Shown, k.Next = k.Next, certs.Pair{}
	}
	if k.Shown.IsZero() {
		return k, why, now
	}
	again, why = k.Shown.Part(1, 2), ""
	if k.Next.IsZero() {
		if again = k.Shown.Part(1, 3); !now.Before(again) {
			why = "its successor is due"
		}
	}
	for _, f := range k.Former {
		if f.Ends.Before(again) {
			again = f.Ends
		}
	}
	return k, why, again
}

// with returns the keyring with the certificate that was asked for.
func (k keyring) with(fresh certs.Pair) keyring {
	k.Request = nil
	if k.Shown.IsZero() {
		k.Shown = fresh
	} else {
		k.Next = fresh
	}
	return k
}

// ids returns the credential ids of what holds, in order.
func (k keyring) ids() []string {
	var ids []string
	for _, p := range []certs.Pair{k.Shown, k.Next} {
		if !p.IsZero() {
			ids = append(ids, p.CredentialID())
		}
	}
	for _, f := range k.Former {
		ids = append(ids, f.ID)
	}
	slices.Sort(ids)
	return ids
}

// secret returns the Secret that keeps the keyring.
func (k keyring) secret(pool edge.PoolName, o owner) *corev1.Secret {
	data := make(map[string][]byte)
	for _, p := range []struct {
		pair      certs.Pair
		cert, key string
	}{{k.Shown, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}, {k.Next, keyNextCert, keyNextKey}} {
		if !p.pair.IsZero() {
			data[p.cert], data[p.key] = p.pair.Cert, p.pair.Key
		}
	}
	if len(k.Request) > 0 {
		data[keyRequest] = k.Request
	}
	for _, f := range k.Former {
		data[keyFormer] = fmt.Appendf(data[keyFormer], "%s %s\n", f.ID, f.Ends.UTC().Format(time.RFC3339))
	}
	return keySecret(pool.KubeletClientSecret(), data, map[string]string{annotationRekey: k.Rekey}, pool, o)
}

// keyringIn reads what secret wrote. What can't be read does not hold.
func keyringIn(s *corev1.Secret) keyring {
	k := keyring{
		Shown: pairIn(s, corev1.TLSCertKey, corev1.TLSPrivateKeyKey), Next: pairIn(s, keyNextCert, keyNextKey),
		Request: s.Data[keyRequest], Rekey: s.Annotations[annotationRekey],
	}
	for line := range strings.Lines(string(s.Data[keyFormer])) {
		id, ends, _ := strings.Cut(strings.TrimSpace(line), " ")
		if t, err := time.Parse(time.RFC3339, ends); err == nil {
			k.Former = append(k.Former, former{id, t})
		}
	}
	return k
}

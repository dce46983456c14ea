package compare

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

func TestLooksFor(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 5, 2: 10, 5: 24, 10: 47, 11: 26, 20: 47, 100: 47, 1000: 47, 5000: 47} {
		if got := looksFor(n); got != want {
			t.Errorf("of %d objects: %d, want %d", n, got, want)
		}
	}
	for n := 1; n < 3000; n++ { // the promise, whatever the number
		lies := math.Ceil(share * float64(n))
		if missed := math.Exp(-lies / float64(n) * float64(looksFor(n))); missed > 1-found+1e-9 {
			t.Fatalf("of %d objects a tenth is missed with %.4f", n, missed)
		}
		if looksFor(n) > 47 {
			t.Fatalf("%d looks at %d objects", looksFor(n), n)
		}
	}
}

// TestPromise plays the draws of a pool's followers: a lie about a tenth is found within a period in 99 of 100 cases, also if it
// is left out.
func TestPromise(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rounds, most = 4000, 0.0125 // of 0.01, what 4000 rounds may show
	for _, followers := range []int{1, 3, 9} {
		timing, sizes := Standard(), []int{1000, 200, 5}
		for which, n := range sizes {
			missed, unnumbered := 0, 0
			for range rounds {
				hit, numbered := false, false
				for range followers {
					for at := time.Duration(r.Float64() * float64(pauseOf(timing, sizes, followers))); at < timing.Period; {
						if k, o := draw(r, sizes); k == which && o >= 0 && float64(o) < math.Ceil(share*float64(n)) {
							hit = true
						} else if k == which && o < 0 {
							numbered = true
						}
						at += jittered(r, pauseOf(timing, sizes, followers))
					}
				}
				if !hit {
					missed++
				}
				if !numbered {
					unnumbered++
				}
			}
			if p := float64(missed) / rounds; p > most {
				t.Errorf("%d followers miss a tenth of %d objects within a period with %.4f", followers, n, p)
			}
			if p := float64(unnumbered) / rounds; p > most {
				t.Errorf("%d followers miss that a tenth of %d objects is left out within a period with %.4f", followers, n, p)
			}
		}
	}
}

// TestBudget: what a pool of 300 Services with ten endpoints each costs fits into a day's bytes, and what a very large one costs
// is cut off there. A lie about a single object is found within two windows.
func TestBudget(t *testing.T) {
	const services, endpoints, frame = 300, 10, 500 // frame is what surrounds an object that is asked for
	r := rand.New(rand.NewPCG(5, 6))
	whole, packed := 0, 0
	for _, kind := range sampled(r, services, endpoints) {
		var all bytes.Buffer
		pack, err := gzip.NewWriterLevel(&all, 1) // as the API server packs
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range kind {
			whole += len(raw)
			if _, err := pack.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := pack.Close(); err != nil {
			t.Fatal(err)
		}
		packed += all.Len()
	}
	sizes := []int{services, services, services}
	object := float64(whole) / float64(len(sizes)*services)
	for name, timing := range map[string]Timing{"standard": Standard(), "metered": Metered()} {
		if timing.Window > 12*time.Hour {
			t.Errorf("%s: windows of %v find a single lie in twice that time", name, timing.Window)
		}
		looks := float64(24*time.Hour) / float64(pauseOf(timing, sizes, 1)) * (object + frame)
		lists := float64(24*time.Hour) / float64(timing.Window) * float64(packed)
		t.Logf("%s: looks %.2f MB, lists %.2f MB a day (an object %.0f bytes, all %d, packed %d)", name, looks/1e6, lists/1e6,
			object, whole, packed)
		if cost := looks + lists; cost > float64(timing.PerDay) {
			t.Errorf("%s: %.1f MB a day, want at most %.1f", name, cost/1e6, float64(timing.PerDay)/1e6)
		}
	}
	p, now, spent := purse{}, time.Unix(1e9, 0), 0.0
	for range 7 * 24 * 60 { // a week of trying every minute
		p.fill(now, 1000)
		if p.bytes > 0 {
			p.bytes -= 100
			spent += 100
		}
		now = now.Add(time.Minute)
	}
	if spent > 7*1000+500+100 || spent < 7*1000 {
		t.Errorf("%v bytes in a week, want 1000 a day and what was there at first", spent)
	}
}

// sampled returns Services, their EndpointSlices and their Endpoints, as the API server encodes them: with names and addresses
// that can't be packed, and what says who manages which field.
func sampled(r *rand.Rand, services, endpoints int) [][][]byte {
	random := func(n int) string {
		const letters = "0123456789abcdef"
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	meta := func(name, manager, fields string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID(random(36)), ResourceVersion: strconv.Itoa(r.IntN(1e8)), Generation: 3,
			CreationTimestamp: metav1.Unix(1.7e9+r.Int64N(1e7), 0), Labels: map[string]string{"app": name},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
				Time: ptr.To(metav1.Unix(1.7e9+r.Int64N(1e7), 0)), FieldsV1: metav1.NewFieldsV1(fields),
			}},
		}
	}
	all := make([][][]byte, 3)
	add := func(kind int, o interface{ Marshal() ([]byte, error) }) {
		raw, err := o.Marshal()
		if err != nil {
			panic(err)
		}
		all[kind] = append(all[kind], raw)
	}
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		add(0, &corev1.Service{
			ObjectMeta: meta(name, "kubectl", `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{`+
				`"f:internalTrafficPolicy":{},`+
				`"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{`+
				`".":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},`+
				`"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`),
			Spec: corev1.ServiceSpec{
				Ports:    []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
				Selector: map[string]string{"app": name}, ClusterIP: fmt.Sprintf("10.96.%d.%d", r.IntN(256), r.IntN(256)),
				Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			},
		})
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: meta(name+"-"+random(5), "kube-controller-manager", `{"f:addressType":{},"f:endpoints":{},"f:metadata":{`+
				`"f:annotations":{".":{},"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},`+
				`"f:labels":{`+
				`".":{},"f:app":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},`+
				`"f:ownerReferences":{".":{},"k:{\"uid\":\"`+random(36)+`\"}":{}}},"f:ports":{}}`),
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080)}},
		}
		old := &corev1.Endpoints{
			ObjectMeta: meta(name, "kube-controller-manager", `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:subsets":{}}`),
			Subsets: []corev1.EndpointSubset{{
				Ports: []corev1.EndpointPort{{Port: 8080, Protocol: corev1.ProtocolTCP}},
			}},
		}
		for range endpoints {
			node, address := fmt.Sprintf("node-%d", r.IntN(50)), fmt.Sprintf("10.244.%d.%d", r.IntN(50), r.IntN(256))
			pod := &corev1.ObjectReference{
				Kind: "Pod", Namespace: "shop", Name: name + "-" + random(10) + "-" + random(5), UID: types.UID(random(36)),
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{address}, NodeName: &node, TargetRef: pod,
				Conditions: discoveryv1.EndpointConditions{
					Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false),
				},
			})
			old.Subsets[0].Addresses = append(old.Subsets[0].Addresses, corev1.EndpointAddress{
				IP: address, NodeName: &node, TargetRef: pod,
			})
		}
		add(1, slice)
		add(2, old)
	}
	return all
}

func TestEvery(t *testing.T) {
	if got := Standard().Every(time.Hour); got != Standard() {
		t.Errorf("%+v", got)
	}
	want := Timing{Period: time.Minute, Window: 12 * time.Minute, PerDay: 600 << 20}
	if got := Standard().Every(time.Minute); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLister: in each window it is one follower's turn, and each has its turn.
func TestLister(t *testing.T) {
	for _, followers := range []int{0, 1, 2, 7} {
		var turns []int
		for window := range int64(7) {
			i := lister("services", window, followers)
			if i < 0 || i >= max(followers, 1) {
				t.Fatalf("it is the turn of %d of %d", i, followers)
			}
			turns = append(turns, i)
		}
		slices.Sort(turns)
		if n := len(slices.Compact(turns)); n != max(followers, 1) {
			t.Errorf("%d of %d followers have a turn", n, followers)
		}
	}
}

func TestJudge(t *testing.T) {
	is := func(revision edge.Revision, content string) seen {
		return seen{found: true, revision: revision, digest: digestOf([]byte(content))}
	}
	for name, tt := range map[string]struct {
		cloud seen
		at    edge.Revision
		here  seen
		upTo  edge.Revision
		want  verdict
	}{
		"the same":                              {is(7, "a"), 10, is(7, "a"), 10, same},
		"the same, and the replica is further":  {is(7, "a"), 10, is(7, "a"), 99, same},
		"neither has it":                        {seen{}, 10, seen{}, 10, same},
		"the replica has not come so far":       {is(9, "b"), 10, is(7, "a"), 9, behind},
		"nor of what is gone":                   {seen{}, 10, is(7, "a"), 9, behind},
		"changed since":                         {is(7, "a"), 10, is(11, "b"), 12, changed},
		"made since":                            {seen{}, 10, is(11, "b"), 12, changed},
		"changed at the moment of the question": {is(10, "a"), 10, is(10, "a"), 10, same},
		"other content":                         {is(7, "a"), 10, is(7, "b"), 10, differs},
		"an earlier revision":                   {is(9, "b"), 10, is(7, "a"), 10, differs},
		"a revision that the cloud never gave":  {is(7, "a"), 10, is(8, "a"), 10, differs},
		"invented":                              {seen{}, 10, is(7, "a"), 10, invented},
		"kept though it is gone":                {seen{}, 10, is(7, "a"), 50, invented},
		"left out, or deleted since":            {is(7, "a"), 10, seen{}, 12, missing},
		"a revision from far in the future":     {is(7, "a"), 10, is(1<<60, "a"), 12, changed},
	} {
		if got := judge(tt.cloud, tt.at, tt.here, tt.upTo); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestJudgeBefore(t *testing.T) {
	is := func(revision edge.Revision, content string) seen {
		return seen{found: true, revision: revision, digest: digestOf([]byte(content))}
	}
	for name, tt := range map[string]struct {
		before seen
		upTo   edge.Revision
		cloud  seen
		want   verdict
	}{
		"the same":                         {is(7, "a"), 9, is(7, "a"), behind},
		"changed between":                  {is(7, "a"), 9, is(10, "b"), behind},
		"deleted between, or invented":     {is(7, "a"), 9, seen{}, behind},
		"made between":                     {seen{}, 9, is(10, "a"), behind},
		"other content":                    {is(7, "a"), 9, is(7, "b"), differs},
		"a revision that it never had":     {is(8, "a"), 9, is(7, "a"), differs},
		"a revision that nothing has yet":  {is(11, "a"), 9, is(7, "a"), ahead},
		"and of what the cloud has not":    {is(11, "a"), 9, seen{}, ahead},
		"it says that it has come further": {is(7, "a"), 11, is(7, "a"), ahead},
	} {
		if got := judgeBefore(tt.cloud, 10, tt.before, tt.upTo); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestDigest(t *testing.T) {
	one := digestOf([]byte(`{"apiVersion":"v1","kind":"X","metadata":{"name":"a","uid":"u"},"spec":{"n":1}}`))
	if digestOf([]byte(`{"spec":{"n":1}, "metadata":{"uid":"u","name":"a"}}`)) != one {
		t.Error("the same object, written in another way, is another")
	}
	for _, other := range []string{`{"spec":{"n":2},"metadata":{"uid":"u","name":"a"}}`, `{"spec":`, "", "k8s"} {
		if digestOf([]byte(other)) == one {
			t.Errorf("%q is the same", other)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for v := behind; v <= withheld; v++ {
		innocent := v == behind || v == same || v == changed || v == missing
		if v.lie() == innocent || v.String() == "" {
			t.Errorf("%s is a lie: %v", v, v.lie())
		}
	}
}

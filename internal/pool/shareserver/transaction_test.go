package shareserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"yurtcoordinator/internal/stream"
)

// recorded notes the size of each transaction.
type recorded struct {
	sizes  []int
	denied bool // conditions do not hold
	err    error
	ended  bool // a transaction came with a context that had ended
}

func (r *recorded) write(ctx context.Context, txn *etcdserverpb.TxnRequest) (done bool, err error) {
	r.sizes = append(r.sizes, len(txn.Success))
	r.ended = r.ended || ctx.Err() != nil
	return !r.denied && r.err == nil, r.err
}

func TestTransactionsStayWithinEtcdsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		puts, bytes int
		want        []int
	}{
		"nothing":            {0, 0, nil},
		"one":                {1, 10, []int{1}},
		"as many as go":      {maxTxnOps, 10, []int{maxTxnOps}},
		"one more":           {maxTxnOps + 1, 10, []int{maxTxnOps, 1}},
		"large ones":         {5, maxTxnBytes/2 - 10, []int{2, 2, 1}},
		"each beyond a half": {3, maxTxnBytes/2 + 1, []int{1, 1, 1}},
		"one beyond all":     {1, maxTxnBytes + 1, []int{1}},
	} {
		r := &recorded{}
		batch := Transaction{Write: r.write}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the request has ended; what it began is written all the same
		for i := range c.puts {
			if err := batch.Put(ctx, fmt.Appendf(nil, "%04d", i), make([]byte, c.bytes)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := batch.Commit(ctx); err != nil || !slices.Equal(r.sizes, c.want) || r.ended {
			t.Errorf("%s: transactions of %v, %v, ended %v; want %v", name, r.sizes, err, r.ended, c.want)
		}
	}
}

func TestATransactionSaysWhyItFailed(t *testing.T) {
	broken := errors.New("etcd is out of order")
	for name, c := range map[string]struct {
		etcd recorded
		want error
	}{
		"its conditions do not hold": {recorded{denied: true}, ErrChanged},
		"etcd fails":                 {recorded{err: broken}, broken},
	} {
		batch := Transaction{Write: c.etcd.write}
		if err := batch.Remove(t.Context(), []byte("a")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		batch.Provided([]byte("a"), 7)
		if err := batch.Commit(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := batch.Commit(t.Context()); err != nil || len(c.etcd.sizes) != 1 {
			t.Errorf("%s: committed again: %v, %v", name, c.etcd.sizes, err)
		}
	}
}

func TestNoKeyIsAWayToAnother(t *testing.T) {
	for key, ok := range map[string]bool{
		"shop/web":                         true,
		"/n1":                              false, // no namespace
		"shop/":                            false,
		"shop/..":                          false,
		"shop/a%2Fb":                       false,
		"Shop/web":                         false,
		"sh.op/web":                        false,
		"shop/../other":                    false,
		"shop/" + strings.Repeat("a", 253): true,
		"shop/" + strings.Repeat("a", 254): false,
	} {
		namespace, name, _ := strings.Cut(key, "/")
		if err := CheckKey(keyOf(namespace, name), true); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
	for key, ok := range map[string]bool{"n1": true, "../n1": false, "": false} {
		if err := CheckKey(keyOf("", key), false); (err == nil) != ok {
			t.Errorf("%q of no namespace: %v", key, err)
		}
	}
}

func keyOf(namespace, name string) stream.Key { return stream.Key{Namespace: namespace, Name: name} }

package pooltest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// FakeEtcd is a map that fails on demand.
type FakeEtcd struct {
	Mu     sync.Mutex
	Keys   map[string]string
	at     map[string]int64 // the last write of each key
	Writes int
	// Fail says whether a transaction fails, and whether it is applied nevertheless.
	Fail func() (failed, applied bool)
}

var errEtcd = errors.New("etcd is out of order")

func (e *FakeEtcd) Write(_ context.Context, txn *etcdserverpb.TxnRequest) (done bool, err error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	failed, applied := false, true
	for _, c := range txn.Compare {
		if e.at[string(c.Key)] != c.GetModRevision() {
			return false, nil
		}
	}
	if e.Fail != nil {
		failed, applied = e.Fail()
	}
	if applied || !failed {
		seen := map[string]bool{}
		for _, op := range txn.Success {
			put, remove := op.GetRequestPut(), op.GetRequestDeleteRange()
			key := string(put.GetKey()) + string(remove.GetKey())
			if seen[key] || len(txn.Success) > 128 {
				return false, fmt.Errorf("etcd refuses a transaction of %d operations, %s among them twice",
					len(txn.Success), key)
			}
			seen[key] = true
			if put != nil {
				e.Keys[key] = string(put.Value)
			} else {
				delete(e.Keys, key)
			}
			e.Writes++
			if e.at == nil {
				e.at = map[string]int64{}
			}
			if e.at[key] = int64(e.Writes); put == nil {
				delete(e.at, key)
			}
		}
	}
	if failed {
		return false, errEtcd
	}
	return true, nil
}

func (e *FakeEtcd) Read(_ context.Context, key []byte) (value []byte, written int64, err error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	text, ok := e.Keys[string(key)]
	if !ok {
		return nil, 0, nil
	}
	return []byte(text), e.at[string(key)], nil
}

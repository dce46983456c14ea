package shareserver

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// maxTxnOps and maxTxnBytes bound one etcd transaction: etcd's defaults are 128 operations and 1.5 MiB.
	maxTxnOps   = 128
	maxTxnBytes = 1 << 20
	// txnTimeout is far above the milliseconds that etcd needs in memory. etcd's own limit is 7 s.
	txnTimeout = 10 * time.Second
)

// ErrChanged means that a transaction's conditions did not hold, so it has changed nothing.
var ErrChanged = errors.New("somebody else has changed it meanwhile")

// Writer commits a transaction to etcd, and reports whether its conditions held. After an error it may be committed or not.
type Writer func(context.Context, *etcdserverpb.TxnRequest) (done bool, err error)

// Reader reads a key of etcd: its value (nil means none), and the revision of its last write.
type Reader func(ctx context.Context, key []byte) (value []byte, written int64, err error)

// Transaction gathers operations, and commits them whenever they reach etcd's bounds. Set Write before use.
type Transaction struct {
	Write Writer
	ops   []*etcdserverpb.RequestOp
	// unchanged are the conditions of the operations: keys as they were read.
	unchanged []*etcdserverpb.Compare
	bytes     int
}

// Put adds a write of a key. It first commits what was added before if there is no room.
func (t *Transaction) Put(ctx context.Context, key, value []byte) error {
	return t.add(ctx, len(key)+len(value), &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value},
	}})
}

// Remove adds the deletion of a key, as Put adds a write.
func (t *Transaction) Remove(ctx context.Context, key []byte) error {
	return t.add(ctx, len(key), &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}})
}

func (t *Transaction) add(ctx context.Context, bytes int, op *etcdserverpb.RequestOp) error {
	if len(t.ops) == maxTxnOps || (len(t.ops) > 0 && t.bytes+bytes > maxTxnBytes) {
		if err := t.Commit(ctx); err != nil {
			return err
		}
	}
	t.ops = append(t.ops, op)
	t.bytes += bytes
	return nil
}

// Provided makes the batch depend on a key. The batch is committed only if nobody has written the key since the revision written.
func (t *Transaction) Provided(key []byte, written int64) {
	t.unchanged = append(t.unchanged, &etcdserverpb.Compare{
		Key: key, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
		TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: written},
	})
}

// Commit writes what was gathered. It does not end with ctx, because the outcome of a write that is given up halfway is unknown.
func (t *Transaction) Commit(ctx context.Context) error {
	if len(t.ops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txnTimeout)
	defer cancel()
	done, err := t.Write(ctx, &etcdserverpb.TxnRequest{Compare: t.unchanged, Success: t.ops})
	t.ops, t.unchanged, t.bytes = nil, nil, 0
	if err == nil && !done {
		return ErrChanged
	}
	return err
}

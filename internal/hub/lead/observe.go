package lead

import "context"

// observe updates the board from what the coordinator tells of the election Lease, until ctx ends.
func (k *Elector) observe(ctx context.Context) {
	for {
		seen, changed := k.config.Seen.Watch()
		k.board.see(seen)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// see stores what the coordinator tells, unless the board already has a newer version of the Lease from this hub's own writes.
func (b *board) see(s Sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	newer := b.lease != nil && s.Lease != nil && LeaseRevision(b.lease) >= LeaseRevision(s.Lease)
	if newer && (!s.Found || b.lease.UID == s.Lease.UID) {
		return
	}
	b.setLocked(s.Lease, s.Known)
}

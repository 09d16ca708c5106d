package kv

import (
	"sync"

	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// purgeStep is the result of one transaction's deletes of expired keys in one family.
type purgeStep struct {
	base       txn.TreeID
	s          ttl.PurgeStats
	how        purgeKind
	partitions int // dropped
}

// purgeKind is the cause of deletes of expired keys.
type purgeKind uint8

const (
	inBatch       purgeKind = iota // of a purge
	inTransaction                  // of a purge in a caller's transaction
	evicted                        // because readers found the keys
	inPartitions                   // that were dropped
)

// purgeCounts counts deletes of expired keys since Open, by family. It is safe for concurrent use.
type purgeCounts struct {
	mu     sync.Mutex
	counts map[txn.TreeID]familyPurges // guarded by mu
}

type familyPurges struct {
	purged, evicted, bytes int64
	batches, partitions    uint64
}

func (c *purgeCounts) add(s purgeStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[txn.TreeID]familyPurges)
	}
	n := c.counts[s.base]
	n.bytes += s.s.Bytes
	switch s.how {
	case inBatch:
		n.batches++
		n.purged += s.s.Keys
	case inTransaction:
		n.purged += s.s.Keys
	case inPartitions:
		n.purged += s.s.Keys
		n.partitions += uint64(s.partitions)
	case evicted:
		n.evicted += s.s.Keys
	}
	c.counts[s.base] = n
}

func (c *purgeCounts) of(base txn.TreeID) familyPurges {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[base]
}

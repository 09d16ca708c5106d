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
	inTransaction                  // of a purge in a caller's transaction, or of a drop of partitions
	evicted                        // because readers found the keys
)

// purgeCounts counts deletes of expired keys since Open, by family. It is safe for concurrent use.
type purgeCounts struct {
	mu     sync.Mutex
	counts map[txn.TreeID]FamilyStats // guarded by mu
}

func (c *purgeCounts) add(steps ...purgeStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[txn.TreeID]FamilyStats)
	}
	for _, s := range steps {
		n := c.counts[s.base]
		n.BytesReclaimed += s.s.Bytes
		n.PartitionsDropped += uint64(s.partitions)
		if s.how == evicted {
			n.Evicted += s.s.Keys
		} else {
			n.Purged += s.s.Keys
		}
		if s.how == inBatch {
			n.PurgeBatches++
		}
		c.counts[s.base] = n
	}
}

// of returns the counts of deletes of a family; the other numbers are zero.
func (c *purgeCounts) of(base txn.TreeID) FamilyStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[base]
}

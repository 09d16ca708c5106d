package kv

import (
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// A put with an expiry changes three trees. A batch of puts changes the data tree first, and buffers
// the changes of the indexes. The commit gets those, or the last rows of a family without expiries,
// as its last changes: the log writes their record while they are applied. See txn.Run.

// maxBufferedIndexRows bounds the buffered changes of a transaction, of some hundred bytes each; it
// may be exceeded by one chunk. The family that reaches it flushes its own.
const maxBufferedIndexRows = 8192

// bufferIndexes makes applyAll buffer index changes of the family, until flushIndexes or the commit.
// Meanwhile no other call may read or change the family: with OnExpireTx, which may, nothing is
// buffered.
func (v *familyView) bufferIndexes() {
	if v.indexBuffer == nil && v.tx.db.onExpireTx == nil {
		v.indexBuffer = ttl.NewIndexBuffer()
		v.tx.buffering = append(v.tx.buffering, v)
	}
}

// flushIndexes applies the buffered changes.
func (v *familyView) flushIndexes() error {
	if v.indexBuffer == nil {
		return nil
	}
	n := v.indexBuffer.Len()
	err := v.below(v.rows().FlushIndexes(v.indexBuffer))
	v.tx.bufferedRows -= n - v.indexBuffer.Len()
	return err
}

// runs returns the buffered changes of all families, for the commit.
func (tx *Tx) runs() (runs []txn.Run, err error) {
	for _, v := range tx.buffering {
		more, err := v.rows().Runs(v.indexBuffer)
		if err != nil || len(tx.buffering) == 1 {
			return more, err
		}
		runs = append(runs, more...)
	}
	return runs, nil
}

// releaseBuffers releases the memory of buffered changes.
func (tx *Tx) releaseBuffers() {
	for _, v := range tx.buffering {
		v.indexBuffer.Release()
		v.indexBuffer = nil
	}
	tx.buffering, tx.bufferedRows = nil, 0
}

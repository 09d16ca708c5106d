package ttl

import (
	"fmt"
	"math"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// TimeRows is one time-partitioned family in one transaction. The key of a row in its tree is the
// row's timestamp, in the form of cf.AppendInstant, and the user key. A row expires once its
// timestamp is older than the family's retention.
//
//	P1  a row is in the tree of the partition that holds its timestamp, under a key of at least 9 bytes.
//	P2  no row has a tag, and the data tree and both expiry indexes have no rows.
type TimeRows struct {
	Tx     *txn.Tx
	Family *cf.Family
}

// certainSeconds, in either direction from the epoch, are an int64 of milliseconds.
const certainSeconds = math.MaxInt64/1000 - 1

// Timestamp is t in milliseconds since the epoch, rounded down. ErrInvalid if that is no int64.
func Timestamp(t time.Time) (ms int64, err error) {
	ms = t.UnixMilli() // undefined outside of an int64
	if sec := t.Unix(); -certainSeconds < sec && sec < certainSeconds {
		return ms, nil
	}
	if !time.UnixMilli(ms).Equal(t.Truncate(time.Millisecond)) {
		return 0, fmt.Errorf("%w: the timestamp is too far away", ErrInvalid)
	}
	return ms, nil
}

// AcceptsTimestamp returns ErrInvalid for a row that is expired already, or for one above newest.
func (r TimeRows) AcceptsTimestamp(ms, now, newest int64) error {
	switch {
	case ms < r.OldestLive(now):
		return fmt.Errorf("%w: the timestamp is older than the retention of %d ms",
			ErrInvalid, r.Family.Options.RetentionMs)
	case ms > newest:
		return fmt.Errorf("%w: the timestamp is %d ms in the future", ErrInvalid, uint64(ms)-uint64(now))
	}
	return nil
}

// NewestAccepted is the highest timestamp that a row may have at now: a partition's width and
// maxStep ahead. A row beyond that would keep its partition for a long time.
func (r TimeRows) NewestAccepted(now, maxStep int64) int64 {
	for _, ahead := range [...]int64{r.Family.Options.PartitionMs, maxStep} {
		if now > math.MaxInt64-ahead {
			return math.MaxInt64
		}
		now += ahead
	}
	return now
}

// OldestLive returns the lowest timestamp whose rows are not expired at now. No other code decides
// which timestamps are expired.
func (r TimeRows) OldestLive(now int64) int64 {
	retention := r.Family.Options.RetentionMs
	if now < math.MinInt64+retention {
		return math.MinInt64
	}
	return now - retention + 1
}

// AppendTimeKey appends the key of a row in its tree.
func AppendTimeKey(b []byte, ms int64, key []byte) []byte {
	return append(cf.AppendInstant(b, ms), key...)
}

// SplitTimeKey is the inverse of AppendTimeKey. key shares memory with b.
func SplitTimeKey(b []byte) (ms int64, key []byte, err error) {
	if len(b) <= expirySize {
		return 0, nil, badfile.At("", -1,
			"P1: row with a key of %d bytes, expected at least %d", len(b), expirySize+1)
	}
	return cf.DecodeInstant(b), b[expirySize:], nil
}

// Due lists the partitions without a live row: even the newest possible one is expired at now.
func (r TimeRows) Due(now int64) ([]cf.Partition, error) {
	oldest := r.OldestLive(now)
	return cf.ListPartitions(r.Tx, r.Family, func(p cf.Partition) bool { return p.Last < oldest })
}

// Rows is the number of stored rows of partitions.
func (r TimeRows) Rows(list []cf.Partition) (rows int64) {
	for _, p := range list {
		rows += int64(r.Tx.Rows(p.Tree))
	}
	return rows
}

// Count is the number of stored rows. It costs a look at each partition.
func (r TimeRows) Count() (rows int64, err error) {
	list, err := cf.AllPartitions(r.Tx, r.Family)
	return r.Rows(list), err
}

// CountDue is the number of rows that are expired at now and still stored. Besides a look at each
// partition it costs one descent.
func (r TimeRows) CountDue(now int64) (rows int64, err error) {
	oldest := r.OldestLive(now)
	list, err := cf.ListPartitions(r.Tx, r.Family, func(p cf.Partition) bool { return p.Start < oldest })
	if err != nil {
		return 0, err
	}
	for _, p := range list {
		if p.Last < oldest {
			rows += int64(r.Tx.Rows(p.Tree))
			continue
		}
		below, err := r.Tx.Rank(p.Tree, cf.AppendInstant(nil, oldest))
		if err != nil {
			return 0, err
		}
		rows += int64(below)
	}
	return rows, nil
}

// First returns the lowest timestamp of a stored row; ok is false if there is no row.
func (r TimeRows) First() (ms int64, ok bool, err error) {
	w := r.Family.Partitions(r.Tx)
	p, more, err := w.First(math.MinInt64)
	for ; more; p, more, err = w.Next() {
		if r.Tx.Rows(p.Tree) == 0 {
			continue
		}
		c := r.Tx.Cursor(p.Tree)
		if !c.First() {
			return 0, false, c.Err()
		}
		ms, _, err = SplitTimeKey(c.Key())
		return ms, err == nil, err
	}
	return 0, false, err
}

// Expiry is the instant at which a row with that timestamp expires: the largest int64 if it is
// beyond that.
func (r TimeRows) Expiry(ms int64) int64 {
	if ms > math.MaxInt64-r.Family.Options.RetentionMs {
		return math.MaxInt64
	}
	return ms + r.Family.Options.RetentionMs
}

// sampledRows is the number of rows at each end of a partition that EstimateBytes reads.
const sampledRows = 16

// EstimateBytes estimates the bytes of keys and values in a partition from its first and last rows,
// whose values it does not read.
func (r TimeRows) EstimateBytes(p cf.Partition) (int64, error) {
	rows := int64(r.Tx.Rows(p.Tree))
	if rows == 0 {
		return 0, nil
	}
	var sum, n int64
	for _, first := range [...]bool{true, false} {
		c := r.Tx.Cursor(p.Tree)
		move, ok := c.Prev, false
		if first {
			move, ok = c.Next, c.First()
		} else {
			ok = c.Last()
		}
		for i := 0; ok && i < sampledRows; i++ {
			info, err := r.Tx.Info(p.Tree, c.Key())
			if err != nil {
				return 0, err
			}
			sum += int64(len(c.Key()) + info.Size)
			n++
			ok = move()
		}
		if err := c.Err(); err != nil {
			return 0, err
		}
	}
	return sum * rows / n, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// plainFamily is where no key expires, so that batches on it are written while they are carried
// out. There seqKey holds the number of the newest commit of the child's.
const (
	plainFamily = "plain"
	seqKey      = "!seq"
)

// storedSeq reads the number that each of the child's commits leaves behind.
func storedSeq(db *kv.DB) (uint64, error) {
	v, err := db.CF(plainFamily).Get([]byte(seqKey))
	if errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrCFNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(v), 10, 64)
}

// killTime is what the child's clock says from the begin of commit no on, until the next one.
func killTime(no uint64) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(no)*1000) }

// longAgo is before every expiry, and too far before killTime for a clock that was only nudged: the
// parent sees everything that is stored.
var longAgo = time.UnixMilli(0).Add(-time.Hour)

// killModel computes what each commit does, from its number alone: the child does it to the store,
// the parent to maps.
type killModel struct {
	seed     uint64
	seq      uint64 // the last commit that the maps know
	families map[string]map[string]killRow
}

// killRow is a row; a zero expiry is none. Rows that have expired stay: the store may hold them or
// not.
type killRow struct {
	value  string
	expiry time.Time
}

func (r killRow) due(now time.Time) bool { return !r.expiry.IsZero() && !now.Before(r.expiry) }

func newKillModel(seed uint64) *killModel {
	return &killModel{seed: seed, families: map[string]map[string]killRow{"default": {}}}
}

// killOp is one operation on a key or a family.
type killOp struct {
	what        killVerb
	family, key string
	value       string
	ttl         time.Duration
}

type killVerb uint8

const (
	killPut killVerb = iota // with an expiry, if there is a ttl
	killDelete
	killExpire
	killPersist
	killDrop
)

// killPlan is a commit and what follows it.
type killPlan struct {
	ops     []killOp
	durable bool
	batch   bool // the operations are those of a batch, on the family where no key expires
	// key of the default family: if it has expired, it is evicted before the next commit
	look              string
	purge, checkpoint bool
	reopen            bool
}

// plan describes what commit no is.
func (m *killModel) plan(no uint64) (p killPlan) {
	rnd := rand.New(rand.NewPCG(m.seed, no))
	for range 1 + rnd.IntN(1+rnd.IntN(80)) {
		p.ops = append(p.ops, planOp(rnd))
	}
	p.durable, p.look = rnd.IntN(4) > 0, killKey(rnd)
	p.purge, p.checkpoint, p.reopen = no%10 == 0, rnd.IntN(60) == 0, rnd.IntN(150) == 0
	if no > 1 && rnd.IntN(3) == 0 { // the first commit makes the family
		p.batch, p.durable, p.ops = true, true, nil
		for range 20 + rnd.IntN(100) {
			p.ops = append(p.ops, planRow(rnd))
		}
	}
	return p
}

// planRow is an operation of a batch.
func planRow(rnd *rand.Rand) killOp {
	op := killOp{family: plainFamily, key: killKey(rnd)}
	if rnd.IntN(5) == 0 {
		op.what = killDelete
	} else {
		op.value = strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 1+rnd.IntN(30))
	}
	return op
}

func killKey(rnd *rand.Rand) string { return fmt.Sprintf("key-%04d", rnd.IntN(3000)) }

func planOp(rnd *rand.Rand) killOp {
	op := killOp{family: []string{"default", "a", "b"}[rnd.IntN(3)], key: killKey(rnd)}
	if rnd.IntN(2) == 0 {
		op.ttl = time.Duration(1+rnd.IntN(100_000)) * time.Millisecond
	}
	switch n := rnd.IntN(100); {
	case n < 20:
		op.what = killDelete
	case n == 20 && op.family != "default":
		op.what = killDrop
	case n < 24:
		op.value = strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 1+rnd.IntN(5000))
	case n < 30 && op.ttl > 0:
		op.what = killExpire
	case n < 30:
		op.what = killPersist
	default:
		op.value = strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 1+rnd.IntN(30))
	}
	return op
}

// step does commit no to the maps.
func (m *killModel) step(no uint64) {
	now := killTime(no)
	for _, op := range m.plan(no).ops {
		if op.what == killDrop {
			delete(m.families, op.family)
			continue
		}
		rows := m.families[op.family]
		if rows == nil {
			rows = map[string]killRow{}
			m.families[op.family] = rows
		}
		row, stored := rows[op.key]
		expiry := time.Time{}
		if op.ttl > 0 {
			expiry = now.Add(op.ttl)
		}
		switch {
		case op.what == killPut:
			rows[op.key] = killRow{op.value, expiry}
		case op.what == killDelete:
			delete(rows, op.key)
		case stored && !row.due(now): // A key that is not there gets no expiry, and loses none.
			rows[op.key] = killRow{row.value, expiry}
		}
	}
	if m.families[plainFamily] == nil {
		m.families[plainFamily] = map[string]killRow{}
	}
	m.families[plainFamily][seqKey] = killRow{value: strconv.FormatUint(no, 10)}
	m.seq = no
}

// do does commit no to the store.
func (m *killModel) do(tx *kv.Tx, no uint64, ops []killOp) error {
	for _, op := range ops {
		if op.what == killDrop {
			if err := tx.DropCF(op.family); err != nil && !errors.Is(err, kv.ErrCFNotFound) {
				return err
			}
			continue
		}
		if err := tx.EnsureCF(op.family, kv.CFOptions{}); err != nil {
			return err
		}
		if err := op.do(tx.CF(op.family)); err != nil {
			return err
		}
	}
	if err := tx.EnsureCF(plainFamily, kv.CFOptions{}); err != nil {
		return err
	}
	return tx.CF(plainFamily).Put([]byte(seqKey), []byte(strconv.FormatUint(no, 10)))
}

// apply is do of a plan that is a batch.
func (m *killModel) apply(db *kv.DB, no uint64, ops []killOp) error {
	b := db.NewBatch()
	rows := b.CF(plainFamily)
	for _, op := range ops {
		if op.what == killDelete {
			rows.Delete([]byte(op.key))
		} else {
			rows.Put([]byte(op.key), []byte(op.value))
		}
	}
	rows.Put([]byte(seqKey), []byte(strconv.FormatUint(no, 10)))
	return db.Apply(context.Background(), b)
}

func (op killOp) do(c *kv.CF) (err error) {
	key, value := []byte(op.key), []byte(op.value)
	switch {
	case op.what == killPut && op.ttl > 0:
		return c.PutTTL(key, value, op.ttl)
	case op.what == killPut:
		return c.Put(key, value)
	case op.what == killDelete:
		return c.Delete(key)
	case op.what == killExpire:
		err = c.Expire(key, op.ttl)
	case op.what == killPersist:
		err = c.Persist(key)
	}
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}

// compare reads the whole store. A row that the child may have seen expired, at latest, may be
// gone; one that was expired at purged must be. It reports how many are gone.
func (m *killModel) compare(db *kv.DB, latest, purged time.Time) (expired int, err error) {
	names, err := db.ListCFs()
	if err != nil {
		return 0, err
	}
	if len(names) != len(m.families) {
		return 0, fmt.Errorf("families %v, want %d", names, len(m.families))
	}
	err = db.View(func(tx *kv.Tx) error {
		for name, rows := range m.families {
			gone, err := compareRows(tx.CF(name), rows, latest, purged)
			expired += gone
			if err = errors.Join(err, tx.Err()); err != nil {
				return fmt.Errorf("family %s: %w", name, err)
			}
		}
		return nil
	})
	return expired, err
}

func compareRows(c *kv.CF, rows map[string]killRow, latest, purged time.Time) (gone int, err error) {
	found := map[string]bool{}
	for key, value := range c.All() {
		row, ok := rows[string(key)]
		at, err := c.Expiry(key)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			return 0, fmt.Errorf("key %q should not be there", key)
		case row.value != string(value):
			return 0, fmt.Errorf("key %q: %d bytes, want %d, or others", key, len(value), len(row.value))
		case !at.Equal(row.expiry):
			return 0, fmt.Errorf("key %q expires at %v, want %v", key, at, row.expiry)
		case row.due(purged):
			return 0, fmt.Errorf("key %q expired at %v and is there after a purge at %v", key, at, purged)
		}
		found[string(key)] = true
	}
	for key, row := range rows {
		switch {
		case found[key]:
		case row.due(latest):
			gone++
		default:
			return 0, fmt.Errorf("key %q is missing", key)
		}
	}
	return gone, nil
}

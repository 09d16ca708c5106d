package keyspace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/kv"
)

// Verification is the result of Verify.
type Verification struct {
	Keys, Rows int64
	Orphans    int      // dead collections that are not retired
	Problems   []string // at most mostProblems
}

const mostProblems = 100

func (v *Verification) problem(format string, args ...any) {
	if len(v.Problems) < mostProblems {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// Has says whether the store has the families of a database.
func (st *Store) Has(tx *kv.Tx, n int) (bool, error) {
	_, err := tx.CFOptions(familyName(masterFamily, n))
	if errors.Is(err, kv.ErrCFNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Verify reads all rows of the space and compares them with each other: every collection has as many
// elements as its master row says, both rows of each member of a sorted set, and a header row with
// its key. Expired keys are not looked at.
func (s *Space) Verify(ctx context.Context) (Verification, error) {
	v := verifier{s: s, ctx: ctx}
	err := v.keys()
	if err == nil && len(v.found.Problems) == 0 { // else whose rows are whose is not known
		err = v.orphans()
	}
	return v.found, err
}

type verifier struct {
	s     *Space
	ctx   context.Context
	found Verification
}

// keys compares each master row with its element rows.
func (v *verifier) keys() error {
	for key, value := range v.s.master.Scan(kv.ScanOptions{}) {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		v.found.Keys++
		row, err := decodeRow(value)
		if err != nil || len(key) == 0 || key[0] != 'k' {
			v.found.problem("key %q: no master row: %v", key, err)
			continue
		}
		if row.Type != TypeString {
			if err := v.collection(key[1:], &row); err != nil {
				return err
			}
		}
	}
	return v.s.tx.Err()
}

// collection compares the element rows of a key with its master row.
func (v *verifier) collection(key []byte, row *Row) error {
	kinds := map[Type]byte{TypeHash: fieldKind, TypeList: listKind, TypeSet: memberKind, TypeZSet: memberKind}
	header := false
	counted, scores := int64(0), int64(0)
	c := v.s.elements().CursorIn(kv.ScanOptions{Prefix: append([]byte(nil), v.s.header(row.ID)...)})
	for ok := c.First(); ok; ok = c.Next() {
		v.found.Rows++
		name := c.Key()[8:]
		switch {
		case len(name) == 0:
			header = string(c.Value()) == string(key)
		case name[0] == scoreKind && row.Type == TypeZSet && len(name) >= 9:
			scores++
			score, ok, err := v.s.Score(row, name[9:])
			if err != nil {
				return err
			}
			if !ok || sortable(score) != binary.BigEndian.Uint64(name[1:]) {
				v.found.problem("key %q: member %q has two scores", key, name[9:])
			}
		case name[0] != kinds[row.Type]:
			v.found.problem("key %q: a %s has an element row of kind %q", key, row.Type, name[0])
		default:
			if _, expires := c.Expiry(); !expires || row.Type != TypeHash {
				counted++
			}
		}
	}
	switch {
	case c.Err() != nil:
		return c.Err()
	case !header:
		v.found.problem("key %q: the header row of its %s is missing, or names another key", key, row.Type)
	case counted != row.Count:
		v.found.problem("key %q: a %s of %d elements has %d rows", key, row.Type, row.Count, counted)
	case row.Type == TypeZSet && scores != counted:
		v.found.problem("key %q: a zset of %d members has %d scores", key, counted, scores)
	}
	return nil
}

// orphans counts the dead collections that are not retired.
func (v *verifier) orphans() error {
	for last := uint64(0); ; {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		dead, next, err := v.s.Sweep(last, 1024)
		if err != nil {
			return err
		}
		for _, id := range dead {
			retired, err := v.s.elements().Has(retiredKey(id))
			if err != nil {
				return err
			}
			if !retired {
				v.found.Orphans++
			}
		}
		if next == 0 {
			return nil
		}
		last = next
	}
}

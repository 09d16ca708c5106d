package keyspace

import (
	"iter"
	"time"

	"github.com/ebbkv/ebb/kv"
)

const fieldKind = 'f'

// Field is a field of a hash.
type Field struct {
	Name, Value []byte // valid until the next step
	Expiry      int64  // ms; 0: permanent
}

// GetField returns the value of a field; ok false if it is absent.
func (s *Space) GetField(row *Row, field []byte) (value []byte, ok bool, err error) {
	if row.Type == 0 || len(field) > s.store.maxElement() {
		return nil, false, nil
	}
	value, err = s.elements().Get(s.elementKey(row.ID, fieldKind, field))
	ok, err = absent(err)
	return value, ok, err
}

// FieldExpiry returns the expiry of a field, 0 if it is permanent; ok false if it is absent.
func (s *Space) FieldExpiry(row *Row, field []byte) (expiry int64, ok bool, err error) {
	if row.Count == 0 && row.fieldMax == 0 || len(field) > s.store.maxElement() {
		return 0, false, nil // a hash that this command makes, or none
	}
	at, err := s.elements().Expiry(s.elementKey(row.ID, fieldKind, field))
	if ok, err = absent(err); !ok || at.IsZero() {
		return 0, ok, err
	}
	return at.UnixMilli(), true, nil
}

// SetField puts a field; Save follows.
func (s *Space) SetField(
	key []byte,
	row *Row,
	field, value []byte,
	expiry int64,
) (added bool, err error) {
	was, ok, err := s.FieldExpiry(row, field)
	if err != nil {
		return false, err
	}
	if expiry == KeepExpiry {
		expiry = was
	}
	if err := noteExpiry(s, key, row, ok, was, expiry); err != nil {
		return false, err
	}
	o := kv.PutOptions{}
	if expiry > 0 {
		o.ExpireAt = time.UnixMilli(expiry)
	}
	_, err = s.changing(s.elements()).PutWith(s.elementKey(row.ID, fieldKind, field), value, o)
	return !ok, err
}

// DeleteField deletes a field; Save follows.
func (s *Space) DeleteField(row *Row, field []byte) (deleted bool, err error) {
	was, ok, err := s.FieldExpiry(row, field)
	if err != nil || !ok {
		return false, err
	}
	if was == 0 {
		row.Count--
	} else if was >= row.fieldMax {
		row.inexact = true
	}
	return true, s.changing(s.elements()).Delete(s.elementKey(row.ID, fieldKind, field))
}

// SetFieldExpiry sets or, with NoExpiry, removes the expiry of a present field; Save follows.
func (s *Space) SetFieldExpiry(key []byte, row *Row, field []byte, was, expiry int64) error {
	if err := noteExpiry(s, key, row, true, was, expiry); err != nil {
		return err
	}
	name := s.elementKey(row.ID, fieldKind, field)
	if expiry == NoExpiry {
		return s.changing(s.elements()).Persist(name)
	}
	return s.changing(s.elements()).ExpireAt(name, time.UnixMilli(expiry))
}

// noteExpiry keeps the counts of the master row when a field gets an expiry or becomes permanent.
func noteExpiry(s *Space, key []byte, row *Row, present bool, was, expiry int64) error {
	if present && was == 0 {
		row.Count--
	}
	if expiry == 0 {
		row.Count++
	}
	if present && was > 0 && was >= row.fieldMax && expiry < was {
		row.inexact = true
	}
	if expiry == 0 {
		return nil
	}
	if row.fieldMax == 0 && !row.unsaved {
		user, err := s.Expiry(key, row)
		if err != nil {
			return err
		}
		row.userExpiry = user
	}
	if expiry >= row.fieldMax {
		row.fieldMax, row.inexact = expiry, false
	}
	return nil
}

// saveHash stores the master row of a hash. A hash without a live field is deleted.
func saveHash(s *Space, key []byte, row *Row) error {
	if row.fieldMax == 0 {
		if row.Count == 0 {
			return s.deleteEmpty(key, row)
		}
		if row.Count == row.stored && !row.unsaved {
			return nil // the row is as it was
		}
		return s.putKeep(key, row)
	}
	if row.Count == 0 && row.inexact {
		if err := tighten(s, row); err != nil {
			return err
		}
	}
	expiry := row.userExpiry
	if row.fieldMax <= s.Now { // no field with an expiry is live
		if row.Count == 0 {
			return s.deleteEmpty(key, row)
		}
		row.fieldMax, row.userExpiry, row.inexact = 0, 0, false
	} else if row.Count == 0 && (expiry == 0 || row.fieldMax < expiry) {
		expiry = row.fieldMax
	}
	row.unsaved = false
	return s.put(key, row, expiry)
}

// tighten finds the latest expiry of the fields. It ends at the first that has the known bound.
func tighten(s *Space, row *Row) error {
	latest := int64(1)
	c := fieldCursor(s, row, nil)
	for ok := c.First(); ok && latest < row.fieldMax; ok = c.Next() {
		if at, ok := c.Expiry(); ok {
			latest = max(latest, at.UnixMilli())
		}
	}
	row.fieldMax, row.inexact = latest, false
	return c.Err()
}

func fieldCursor(s *Space, row *Row, from []byte) *kv.Cursor {
	o := kv.ScanOptions{Prefix: s.elementKey(row.ID, fieldKind, nil)}
	c := s.elements().CursorIn(o)
	if from != nil {
		c.Seek(s.elementKey(row.ID, fieldKind, from))
	}
	return c
}

// Fields ranges over the live fields of a hash from a name on, in the order of names.
func (s *Space) Fields(row *Row, from []byte) iter.Seq[Field] {
	return func(yield func(Field) bool) {
		if row.Type == 0 {
			return
		}
		c := fieldCursor(s, row, from)
		ok := c.Valid()
		if from == nil {
			ok = c.First()
		}
		for ; ok; ok = c.Next() {
			f := Field{Name: c.Key()[elementPrefix:], Value: c.Value()}
			if at, ok := c.Expiry(); ok {
				f.Expiry = at.UnixMilli()
			}
			if !yield(f) {
				return
			}
		}
	}
}

// FieldCount returns the number of live fields. With expiries among them it walks over all.
func (s *Space) FieldCount(row *Row) (n int64, err error) {
	if row.fieldMax == 0 {
		return row.Count, nil
	}
	for range s.Fields(row, nil) {
		n++
	}
	return n, s.tx.Err()
}

// NextFieldExpiry returns the earliest expiry of the live fields; 0: none has one.
func (s *Space) NextFieldExpiry(row *Row) (next int64, err error) {
	if row.fieldMax == 0 {
		return 0, nil
	}
	for f := range s.Fields(row, nil) {
		if f.Expiry > 0 && (next == 0 || f.Expiry < next) {
			next = f.Expiry
		}
	}
	return next, s.tx.Err()
}

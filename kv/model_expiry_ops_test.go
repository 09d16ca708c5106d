package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// familyVerbs are what *kv.CF and *kv.Family have in common.
type familyVerbs interface {
	points
	DeleteRange(lo, hi []byte) error
	DeletePrefix(p []byte) error
	Clear() error
	PurgeExpired(ctx context.Context, o kv.PurgeOptions) (kv.PurgeResult, error)
}

// on is one operation with what it works on.
type on struct {
	r     *scriptRun
	s     step
	name  string
	v     familyVerbs
	key   string
	arg   int
	state modelState
	f     *modelFamily // nil: there is none
	now   int64
}

func (o *on) k() []byte { return []byte(o.key) }

// ttl is a duration that the argument stands for; often short.
func (o *on) ttl() time.Duration {
	if o.arg%7 == 0 {
		return time.Duration(o.arg+1) * time.Hour
	}
	return time.Duration(o.arg+1)*31*time.Millisecond - 5*time.Microsecond
}

func (o *on) value() []byte { return []byte(strings.Repeat(string(rune('a'+o.arg%26)), o.arg%40)) }

// live is the row of the key, if it is there and not expired.
func (o *on) live() (modelRow, bool) {
	row, ok := o.f.rows[o.key]
	return row, ok && !(row.expiry != 0 && o.now >= row.expiry)
}

// usual is the expiry that Put gives.
func (o *on) usual() int64 {
	if o.f.defaultTTL == 0 {
		return 0
	}
	return o.now + o.f.defaultTTL
}

// after is the expiry of o.ttl().
func (o *on) after() int64 { return o.now + (o.ttl() + time.Millisecond - 1).Milliseconds() }

func (o *on) set(value []byte, expiry int64) { o.f.rows[o.key] = modelRow{string(value), expiry} }

// missed notes the key if it is expired, as reads do; a one-shot read then evicts what is noted, if
// that is a batch.
func (o *on) missed() {
	row, ok := o.f.rows[o.key]
	if _, live := o.live(); !ok || live {
		return
	}
	o.r.note(o.name, o.f, o.key, row.expiry)
	if o.r.tx == nil && len(o.r.notes) >= 256 {
		o.r.evict(o.now)
	}
}

func expect(what string, err, want error) error {
	if (want == nil) != (err == nil) || (want != nil && !errors.Is(err, want)) {
		return fmt.Errorf("%s: error %v, want %v", what, err, want)
	}
	return nil
}

func same[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

// kindOf is an operation of the scripts. Those with verbs work on a family that is there, one-shot
// or in the open transaction; write says that they begin a write transaction.
type kindOf struct {
	name   string
	weight int
	write  bool
	run    func(o *on) error
}

var readKinds = []kindOf{
	{"get", 8, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Get(o.k())
		if !live {
			o.missed()
			return expect("get", err, kv.ErrNotFound)
		}
		return errors.Join(expect("get", err, nil), same("get", string(got), row.value))
	}},
	{"getttl", 3, false, func(o *on) error {
		row, live := o.live()
		got, left, err := o.v.GetTTL(o.k())
		if !live {
			o.missed()
			return expect("getttl", err, kv.ErrNotFound)
		}
		return errors.Join(expect("getttl", err, nil), same("getttl", string(got), row.value),
			same("left", left, leftOf(row, o.now)))
	}},
	{"has", 3, false, func(o *on) error {
		_, live := o.live()
		got, err := o.v.Has(o.k())
		if !live {
			o.missed()
		}
		return errors.Join(expect("has", err, nil), same("has", got, live))
	}},
	{"size", 2, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Size(o.k())
		if !live {
			o.missed()
			return expect("size", err, kv.ErrNotFound)
		}
		return errors.Join(expect("size", err, nil), same("size", got, len(row.value)))
	}},
	{"expiry", 2, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Expiry(o.k())
		if !live {
			return expect("expiry", err, kv.ErrNotFound)
		}
		want := time.Time{}
		if row.expiry != 0 {
			want = time.UnixMilli(row.expiry)
		}
		return errors.Join(expect("expiry", err, nil), same("expiry", got, want))
	}},
}

func leftOf(row modelRow, now int64) time.Duration {
	if row.expiry == 0 {
		return kv.NoExpiry
	}
	return max(0, time.Duration(row.expiry-now)*time.Millisecond)
}

var writeKinds = []kindOf{
	{"put", 8, true, func(o *on) error {
		o.set(o.value(), o.usual())
		return expect("put", o.v.Put(o.k(), o.value()), nil)
	}},
	{"putttl", 16, true, func(o *on) error {
		o.set(o.value(), o.after())
		return expect("putttl", o.v.PutTTL(o.k(), o.value(), o.ttl()), nil)
	}},
	{"putat", 4, true, func(o *on) error {
		at := time.UnixMilli(o.now).Add(o.ttl() - 40*time.Millisecond)
		err := o.v.PutExpireAt(o.k(), o.value(), at)
		if !at.After(time.UnixMilli(o.now)) {
			return expect("putat", err, kv.ErrInvalidTTL)
		}
		o.set(o.value(), at.Add(time.Millisecond-1).UnixMilli())
		return expect("putat", err, nil)
	}},
	{"badttl", 1, true, func(o *on) error {
		return errors.Join(expect("putttl 0", o.v.PutTTL(o.k(), o.value(), 0), kv.ErrInvalidTTL))
	}},
	{"keep", 4, true, func(o *on) error {
		row, live := o.live()
		if !live {
			row.expiry = o.usual()
		}
		o.set(o.value(), row.expiry)
		_, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{KeepTTL: true})
		return expect("keep", err, nil)
	}},
	{"permanent", 2, true, func(o *on) error {
		o.set(o.value(), 0)
		_, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{NoExpiry: true})
		return expect("permanent", err, nil)
	}},
	{"ifabsent", 5, true, func(o *on) error {
		_, live := o.live()
		if !live {
			o.set(o.value(), o.after())
		}
		written, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{IfAbsent: true, TTL: o.ttl()})
		return errors.Join(expect("ifabsent", err, nil), same("written", written, !live))
	}},
	{"ifpresent", 3, true, func(o *on) error {
		_, live := o.live()
		if live {
			o.set(o.value(), o.usual())
		}
		written, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{IfPresent: true})
		return errors.Join(expect("ifpresent", err, nil), same("written", written, live))
	}},
	{"del", 5, true, func(o *on) error {
		delete(o.f.rows, o.key)
		return expect("del", o.v.Delete(o.k()), nil)
	}},
	{"expire", 6, true, func(o *on) error {
		row, live := o.live()
		err := o.v.Expire(o.k(), o.ttl())
		if !live {
			return expect("expire", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), o.after())
		return expect("expire", err, nil)
	}},
	{"touch", 4, true, func(o *on) error {
		row, live := o.live()
		got, err := o.v.GetAndExpire(o.k(), o.ttl())
		if !live {
			return expect("touch", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), o.after())
		return errors.Join(expect("touch", err, nil), same("touch", string(got), row.value))
	}},
	{"expireat", 3, true, func(o *on) error {
		row, live := o.live()
		at := time.UnixMilli(o.now + 1 + int64(o.arg)*17)
		err := o.v.ExpireAt(o.k(), at)
		if !live {
			return expect("expireat", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), at.UnixMilli())
		return expect("expireat", err, nil)
	}},
	{"persist", 3, true, func(o *on) error {
		row, live := o.live()
		err := o.v.Persist(o.k())
		if !live {
			return expect("persist", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), 0)
		return expect("persist", err, nil)
	}},
	{"incr", 6, true, func(o *on) error {
		row, live := o.live()
		var ttl time.Duration
		expiry := o.usual()
		if o.arg%2 == 0 {
			ttl, expiry = o.ttl(), o.after()
		}
		sum, err := o.v.Increment(o.k(), int64(o.arg)-100, ttl)
		var old int64
		if live {
			if len(row.value) != 8 {
				return expect("incr", err, kv.ErrNotCounter)
			}
			old, expiry = int64(binary.BigEndian.Uint64([]byte(row.value))), row.expiry
		}
		if want := old + int64(o.arg) - 100; (want > old) == (o.arg > 100) {
			o.set(binary.BigEndian.AppendUint64(nil, uint64(want)), expiry)
			return errors.Join(expect("incr", err, nil), same("sum", sum, want))
		}
		return expect("incr", err, kv.ErrNotCounter)
	}},
	{"swap", 5, true, func(o *on) error {
		row, live := o.live()
		var old []byte
		opts, expiry := kv.PutOptions{}, o.usual()
		switch o.arg % 4 {
		case 0:
			old = []byte(row.value)
			opts.KeepTTL = true
			expiry = row.expiry
		case 1:
			old = []byte(row.value)
			opts.TTL, expiry = o.ttl(), o.after()
		case 2:
			opts.TTL, expiry = o.ttl(), o.after()
		case 3:
			old = []byte("no such value")
		}
		want := (old == nil && !live) || (live && old != nil && string(old) == row.value)
		if want {
			o.set(o.value(), expiry)
		}
		swapped, err := o.v.CompareAndSwap(o.k(), old, o.value(), opts)
		return errors.Join(expect("swap", err, nil), same("swapped", swapped, want))
	}},
	{"cad", 3, true, func(o *on) error {
		row, live := o.live()
		if live {
			delete(o.f.rows, o.key)
		}
		deleted, err := o.v.CompareAndDelete(o.k(), []byte(row.value))
		return errors.Join(expect("cad", err, nil), same("deleted", deleted, live))
	}},
	{"range", 3, true, func(o *on) error {
		lo, hi := o.key, modelKeys[o.arg%len(modelKeys)]
		if o.arg%5 == 0 {
			hi = ""
		}
		maps.DeleteFunc(o.f.rows, func(k string, _ modelRow) bool { return k >= lo && (hi == "" || k < hi) })
		return expect("range", o.v.DeleteRange([]byte(lo), []byte(hi)), nil)
	}},
	{"prefix", 2, true, func(o *on) error {
		p := o.key[:1]
		maps.DeleteFunc(o.f.rows, func(k string, _ modelRow) bool { return strings.HasPrefix(k, p) })
		return expect("prefix", o.v.DeletePrefix([]byte(p)), nil)
	}},
	{"clear", 1, true, func(o *on) error {
		clear(o.f.rows)
		return expect("clear", o.v.Clear(), nil)
	}},
}

var verbKinds = slices.Concat(readKinds, writeKinds)

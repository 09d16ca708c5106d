package txn

import (
	"bytes"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// The log may hold a value of the greatest length in full: commits that wait for no sync log all
// values so. Replay buffers at most largeValue of one operation, and writes a larger value to its
// extent part by part. It applies all earlier operations first.

// largeValue is the length in bytes from which on a value is not buffered. Puts of shorter values
// are sorted with the other operations.
const largeValue = 256 << 10

// large is a put whose value is incomplete.
type large struct {
	redo // without the value
	size uint64
	left uint64              // missing bytes of the value
	to   *pager.ExtentWriter // nil: the replayer only verifies
}

// beginLarge says whether b, an incomplete operation, is the beginning of a put of a large value,
// and if so starts to read it.
func (p *replayer) beginLarge(b []byte) (begun bool, err error) {
	r, size, value := decodePutHead(b)
	if size < largeValue {
		return false, nil
	}
	p.large = &large{redo: r, size: size, left: size}
	p.large.key = bytes.Clone(r.key)
	if err := p.valid(r, size); err != nil {
		return true, err
	}
	if p.w == nil {
		p.buffer.discard()
	} else if err := p.startValue(); err != nil {
		return true, err
	}
	_, err = p.takeValue(value)
	p.keep(nil)
	return true, err
}

// startValue allocates the extent of the value.
func (p *replayer) startValue() (err error) {
	if err := p.applyBuffer(); err != nil {
		return err
	}
	if _, ok := p.w.trees.get(p.large.id); !ok {
		return treeError(p.large.id)
	}
	if err := p.spill(); err != nil {
		return err
	}
	p.large.to, err = p.w.startExtent(int(p.large.size))
	return err
}

// takeValue reads bytes of the value, and returns those behind it.
func (p *replayer) takeValue(b []byte) (rest []byte, err error) {
	l := p.large
	n := min(l.left, uint64(len(b)))
	if l.to != nil && n > 0 {
		if err := l.to.Write(b[:n]); err != nil {
			return nil, p.s.dataError(err)
		}
	}
	if l.left -= n; l.left > 0 {
		return nil, nil
	}
	if p.large = nil; l.to != nil {
		err = p.w.putExtent(l.redo, l.to.Ref, int(l.size))
	}
	return b[n:], err
}

// putExtent puts a value whose bytes are in an extent.
func (w *writer) putExtent(r redo, ref pager.Ref, size int) error {
	t, ok := w.trees.get(r.id)
	if !ok {
		return treeError(r.id)
	}
	_, err := tree.PutExtent(w, &t, r.key, ref, size, r.tag)
	if err == nil {
		w.set(r.id, t)
	}
	return err
}

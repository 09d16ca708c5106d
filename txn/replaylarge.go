package txn

import (
	"bytes"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A value that the log has in full may be as large as a value can be: one that a commit has put
// which waits for no sync. Replay holds no more than largeValue of one operation. A larger value
// goes from the parts of the commit to its extent. All that came before it is applied first.

// largeValue is the length of a value, in bytes, from which on it is not held. Smaller ones take
// part in the order of a batch.
const largeValue = 256 << 10

// large is a put of which some of the value has not come yet.
type large struct {
	redo // without the value
	size uint64
	left uint64              // bytes of the value that have not come
	to   *pager.ExtentWriter // nil: nothing is applied
}

// beginLarge says whether b, an operation without its end, is the beginning of a put of a large
// value, and begins that.
func (p *replayer) beginLarge(b []byte) (begun bool, err error) {
	r, size, value := decodePutHead(b)
	if size < largeValue {
		return false, nil
	}
	p.large = &large{redo: r, size: size, left: size}
	p.large.key = bytes.Clone(r.key)
	if err := p.s.w.valid(r, size); err != nil {
		return true, err
	}
	if p.w == nil {
		p.giveUp()
	} else if err := p.startValue(); err != nil {
		return true, err
	}
	_, err = p.takeValue(value)
	return true, err
}

// startValue makes the extent of the value.
func (p *replayer) startValue() (err error) {
	if err := p.apply(false); err != nil {
		return err
	}
	if _, ok := p.w.trees.get(p.large.id); !ok {
		return treeError(p.large.id)
	}
	if err := p.w.spill(); err != nil {
		return err
	}
	p.large.to, err = p.w.startExtent(int(p.large.size))
	return err
}

// takeValue takes bytes of the value, and gives those behind it.
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

// putExtent puts a value that is in an extent.
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

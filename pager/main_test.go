package pager

import (
	"testing"

	"github.com/ebbkv/ebb/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// NewExtent is StartExtent and Write.
func (p *Pager) NewExtent(epoch Epoch, owner uint64, value []byte, soon bool, how AllocPolicy) (
	Ref, uint64, error,
) {
	e, err := p.StartExtent(epoch, owner, len(value), soon, how)
	if err != nil {
		return Ref{}, 0, err
	}
	return e.Ref, e.Pages, e.Write(value)
}

// Reads of the newest version.
func (r *Reader) Page(ref Ref, base Epoch) ([]byte, error) { return r.View(base, Newest).Page(ref) }
func (r *Reader) Cold(ref Ref, base Epoch) bool            { return r.View(base, Newest).Cold(ref) }
func (r *Reader) ReadAhead(refs []Ref, base Epoch)         { r.View(base, Newest).ReadAhead(refs) }
func (r *Reader) ReadSoon(ref Ref, base Epoch)             { r.View(base, Newest).ReadSoon(ref) }
func (r *Reader) Peek(ref Ref, base Epoch, n int) []byte   { return r.View(base, Newest).Peek(ref, n) }
func (r *Reader) Leaf(ref Ref, base Epoch) (b, changes []byte, err error) {
	return r.View(base, Newest).Leaf(ref)
}

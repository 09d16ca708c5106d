package vfs

import (
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/mapfault"
)

// writeMap is the part of a file that WriteMapped copies into: mapAlign bytes. Each page costs a
// fault at its first access, whatever the size: a larger part would save little, and is resident
// memory.
type writeMap struct {
	b       []byte // nil: none
	off     int64  // of b in the file
	refused bool   // by the system, or a copy had a fault
}

func (f *osFile) WriteMapped(p []byte, off int64) error {
	if f.mapped.cover(f, off, int64(len(p))) {
		err := mapfault.Guard(func(uintptr) error { return ErrIO }, func() error {
			copy(f.mapped.b[off-f.mapped.off:], p)
			return nil
		})
		if err == nil {
			return nil
		}
		f.mapped.refused = true
	}
	return WriteFull(f, p, off) // It returns the cause, or does not fail.
}

// cover maps the part of f that [off, off+n) is in, and says whether it could.
func (m *writeMap) cover(f *osFile, off, n int64) bool {
	at := off % mapAlign
	switch {
	case m.refused || f.direct || at < 0 || n > mapAlign-at:
		return false
	case m.b != nil && m.off == off-at:
		return true
	}
	m.close()
	b, err := mapShared(f.f, off-at, mapAlign, unix.PROT_READ|unix.PROT_WRITE)
	m.b, m.off, m.refused = b, off-at, err != nil
	return err == nil
}

// close unmaps the part; copied bytes stay. An unmap that fails costs memory and no data.
func (m *writeMap) close() {
	if m.b != nil {
		_ = unmapFile(m.b)
		m.b = nil
	}
}

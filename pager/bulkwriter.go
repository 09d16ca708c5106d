package pager

// A BulkWriter allocates pages for the open transaction that are filled once and not read before
// the commit. It writes them many at a time, before the commit, into free space. These pages never
// have frames: in fresh memory, frames would cost more than the rest of a bulk load. Writer lock.
//
// A goroutine writes pages, and starts their write-back, while the caller fills the next ones.
//
// Crash order: no page of a durable state is overwritten, and the sync of the next checkpoint
// covers all writes.
type BulkWriter struct {
	p     *Pager
	pages bulkBuffer      // the caller fills it
	full  chan bulkBuffer // to the writing goroutine, of capacity bulkBuffers; nil: no goroutine runs
	empty chan bulkBuffer // from the writing goroutine, of capacity bulkBuffers
	end   chan error      // of capacity 1: the goroutine's first error, when it ends
}

// bulkBuffer holds pages in memory, and the error of the previous write of the same buffer.
type bulkBuffer struct {
	buf []byte // cap(ids) consecutive pages
	ids []Pgid
	err error
}

// bulkBuffers are one that the caller fills, one that the goroutine writes, and one between them
// for as long as a goroutine takes to wake.
const bulkBuffers = 3

// NewBulkWriter returns a BulkWriter. Finish or Discard ends it.
func (p *Pager) NewBulkWriter() *BulkWriter { return &BulkWriter{p: p, pages: p.newBulkBuffer()} }

func (f *mainFile) newBulkBuffer() bulkBuffer {
	n := stagingBytes / f.pageSize
	return bulkBuffer{buf: make([]byte, n*f.pageSize), ids: make([]Pgid, 0, n)}
}

// Full reports that Flush must run before the next New.
func (l *BulkWriter) Full() bool { return len(l.pages.ids) == cap(l.pages.ids) }

// New returns a page with undefined content, owned by the transaction with this serial. The caller
// fills it before Flush.
func (l *BulkWriter) New(owner uint64, how AllocPolicy) (Pgid, []byte, error) {
	p := l.p
	id, err := p.Alloc.allocate(how, false)
	if err != nil {
		return 0, nil, err
	}
	s := p.Pool.table.slot(id)
	p.Pool.freeFrame(s) // a page of the framed free list has one
	s.owner = owner
	at := len(l.pages.ids) * p.pageSize
	l.pages.ids = append(l.pages.ids, id)
	return id, l.pages.buf[at : at+p.pageSize : at+p.pageSize], nil
}

// Flush starts to write the pages. Its error may be that of an earlier call.
func (l *BulkWriter) Flush() error {
	if l.p.o.Inline {
		return l.flushInline()
	}
	if l.full == nil {
		l.full, l.empty = make(chan bulkBuffer, bulkBuffers), make(chan bulkBuffer, bulkBuffers)
		l.end = make(chan error, 1)
		for range bulkBuffers - 1 {
			l.empty <- l.p.newBulkBuffer()
		}
		go l.p.writeBulkBuffers(l.full, l.empty, l.end)
	}
	l.full <- l.pages
	l.pages = <-l.empty
	return l.pages.err
}

func (l *BulkWriter) flushInline() error {
	err := l.p.writeBulkBuffer(l.pages)
	l.pages.ids = l.pages.ids[:0]
	return err
}

// Finish writes the remaining pages and waits for all writes.
func (l *BulkWriter) Finish() error {
	if l.full == nil {
		return l.flushInline()
	}
	l.full <- l.pages
	return l.Discard()
}

// Discard drops the remaining pages and waits for the running writes. The caller may free all page
// numbers afterwards. Its error is the first failure of the load.
func (l *BulkWriter) Discard() error {
	if l.full == nil {
		return nil
	}
	close(l.full)
	l.full = nil
	return <-l.end
}

// writeBulkBuffers writes buffers until full is closed.
func (f *mainFile) writeBulkBuffers(full <-chan bulkBuffer, empty chan<- bulkBuffer, end chan<- error) {
	var first error
	for d := range full {
		if first == nil {
			first = f.writeBulkBuffer(d)
		}
		d.ids, d.err = d.ids[:0], first
		empty <- d
	}
	end <- first
}

func (f *mainFile) writeBulkBuffer(d bulkBuffer) error {
	for ids, b := d.ids, d.buf; len(ids) > 0; {
		n := consecutive(ids)
		if err := f.writeRun(ids[0], b[:n*f.pageSize]); err != nil {
			return err
		}
		if err := f.startWriteBack(f.byteRange(ids[:n])); err != nil {
			return err
		}
		ids, b = ids[n:], b[n*f.pageSize:]
	}
	return nil
}

// consecutive returns the length of the first run of consecutive ids, at least one.
func consecutive(ids []Pgid) int {
	n := 1
	for n < len(ids) && ids[n] == ids[0]+Pgid(n) {
		n++
	}
	return n
}

// writeRun sets the checksums of consecutive pages, of which id is the first, and writes them.
func (f *mainFile) writeRun(id Pgid, b []byte) error {
	for at := 0; at < len(b); at += f.pageSize {
		SetChecksum(b[at:at+f.pageSize], f.salt)
	}
	if err := f.writeAt(b, int64(id)*int64(f.pageSize)); err != nil {
		return err
	}
	n := len(b) / f.pageSize
	f.pagesWritten.Add(uint64(n))
	for i := range n {
		f.markTrusted(id + Pgid(i))
	}
	return nil
}

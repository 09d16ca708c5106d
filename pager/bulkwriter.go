package pager

import "cmp"

// A Loader gives the open transaction pages that are filled once and not read before it commits,
// and writes them early, many at a time, into the free space that they were given. They never have
// frames: on memory that nobody has touched before, those would cost more than all else that a bulk
// load does. Writer lock.
//
// A goroutine writes pages while the next ones are filled, and has the disk keep them: see Backlog.
//
// Crash order: nothing that a durable state reaches is touched, and the sync of the next checkpoint
// covers what was written.
type BulkWriter struct {
	p     *Pager
	pages bulkBuffer      // handed out, to be filled
	full  chan bulkBuffer // to who writes; has room for all; nil: there is no goroutine
	empty chan bulkBuffer // back from there; has room for all
	end   chan error      // of capacity 1: the first failure, from the goroutine that has ended
}

// bulkBuffer are pages in memory, and what became of those that were in the same memory before.
type bulkBuffer struct {
	buf []byte // room for cap(ids) pages, one behind the other
	ids []Pgid
	err error
}

// bulkBuffers are one to be filled, one that is written, and one between them, for as long as a
// goroutine takes to wake.
const bulkBuffers = 3

// NewBulkWriter makes a Loader. Drop ends it.
func (p *Pager) NewBulkWriter() *BulkWriter { return &BulkWriter{p: p, pages: p.newBulkBuffer()} }

func (p *Pager) newBulkBuffer() bulkBuffer {
	n := stagingBytes / p.pageSize
	return bulkBuffer{buf: make([]byte, n*p.pageSize), ids: make([]Pgid, 0, n)}
}

// Full says that Write has to come before the next page.
func (l *BulkWriter) Full() bool { return len(l.pages.ids) == cap(l.pages.ids) }

// New returns a page with unknown content, owned by the transaction with this serial, to be filled
// before Write.
func (l *BulkWriter) New(owner uint64) (Pgid, []byte, error) {
	p := l.p
	id, err := p.allocate(false)
	if err != nil {
		return 0, nil, err
	}
	s := p.table.slot(id)
	p.freeFrame(s) // one that a page on the hot stack kept
	s.owner = owner
	at := len(l.pages.ids) * p.pageSize
	l.pages.ids = append(l.pages.ids, id)
	return id, l.pages.buf[at : at+p.pageSize : at+p.pageSize], nil
}

// Flush begins to write the pages. An error may be about those of an earlier call.
func (l *BulkWriter) Flush() error {
	if l.p.o.Inline {
		return l.flushInline()
	}
	if l.full == nil {
		l.full, l.empty, l.end = make(
			chan bulkBuffer,
			bulkBuffers,
		), make(
			chan bulkBuffer,
			bulkBuffers,
		), make(
			chan error,
			1,
		)
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

// Finish writes the pages that are left, and waits until all are written.
func (l *BulkWriter) Finish() error {
	if l.full == nil {
		return l.flushInline()
	}
	l.full <- l.pages
	return l.Discard()
}

// Discard forgets the pages that are left, and waits for what is being written: the numbers of all
// may be given back then. Its error is the first failure of the load.
func (l *BulkWriter) Discard() error {
	if l.full == nil {
		return nil
	}
	close(l.full)
	l.full = nil
	return <-l.end
}

// writeBulkBuffers writes pages until there are no more, and has them synced from time to time.
func (p *Pager) writeBulkBuffers(full <-chan bulkBuffer, empty chan<- bulkBuffer, end chan<- error) {
	var first error
	backlog := p.NewBackgroundSync()
	for d := range full {
		if first == nil {
			first = p.writeBulkBuffer(d)
		}
		if first == nil {
			first = backlog.Written(len(d.ids) * p.pageSize)
		}
		d.ids, d.err = d.ids[:0], first
		empty <- d
	}
	last := backlog.Wait()
	end <- cmp.Or(first, last)
}

func (p *Pager) writeBulkBuffer(d bulkBuffer) error {
	for ids, b := d.ids, d.buf; len(ids) > 0; {
		n := consecutive(ids)
		if err := p.writeRun(ids[:n], b[:n*p.pageSize]); err != nil {
			return err
		}
		ids, b = ids[n:], b[n*p.pageSize:]
	}
	return nil
}

// consecutive is how many of the ids, one at least, follow one another.
func consecutive(ids []Pgid) int {
	n := 1
	for n < len(ids) && ids[n] == ids[0]+Pgid(n) {
		n++
	}
	return n
}

// writeRun writes the pages with these consecutive numbers.
func (p *Pager) writeRun(ids []Pgid, b []byte) error {
	for at := 0; at < len(b); at += p.pageSize {
		SetChecksum(b[at:at+p.pageSize], p.salt)
	}
	off := int64(ids[0]) * int64(p.pageSize)
	if err := p.writeAt(b, off); err != nil {
		return err
	}
	p.pagesWritten.Add(uint64(len(ids)))
	for _, id := range ids {
		p.markTrusted(id)
	}
	return nil
}

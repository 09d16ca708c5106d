package pager

// A Loader gives the open transaction pages that are filled once and not read before it commits, and writes them early, many
// at a time, into the free space that they were given. They never have frames: on memory that nobody has touched before,
// those would cost more than all else that a bulk load does. Writer lock.
//
// Crash order: nothing that a durable state reaches is touched, and the sync of the next checkpoint covers what was written.
type Loader struct {
	p   *Pager
	buf []byte // the pages of ids, one behind the other
	ids []Pgid // handed out and not written yet
}

// NewLoader makes a Loader. Who drops it without Flush drops the pages that are not written yet.
func (p *Pager) NewLoader() *Loader {
	n := stagingBytes / p.pageSize
	return &Loader{p: p, buf: make([]byte, n*p.pageSize), ids: make([]Pgid, 0, n)}
}

// Full says that Flush has to come before the next page.
func (l *Loader) Full() bool { return len(l.ids) == cap(l.ids) }

// New returns a page with unknown content, owned by the transaction with this serial, to be filled before Flush.
func (l *Loader) New(owner uint64) (Pgid, []byte, error) {
	p := l.p
	id, err := p.take(false)
	if err != nil {
		return 0, nil, err
	}
	s := p.table.slot(id)
	p.dropFrame(s) // one that a page on the hot stack kept
	s.owner = owner
	at := len(l.ids) * p.pageSize
	l.ids = append(l.ids, id)
	return id, l.buf[at : at+p.pageSize : at+p.pageSize], nil
}

// Flush writes the pages and lets the disk begin with them, so that the sync at the end finds little to do.
func (l *Loader) Flush() error {
	size := l.p.pageSize
	for ids, b := l.ids, l.buf; len(ids) > 0; {
		n := consecutive(ids)
		if err := l.p.writeRun(ids[:n], b[:n*size]); err != nil {
			return err
		}
		ids, b = ids[n:], b[n*size:]
	}
	l.ids = l.ids[:0]
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
		Seal(b[at:at+p.pageSize], p.salt)
	}
	off := int64(ids[0]) * int64(p.pageSize)
	if err := p.writeAt(b, off); err != nil {
		return err
	}
	if err := p.startWriteBack(int64(ids[0])*int64(p.pageSize), int64(len(ids))*int64(p.pageSize)); err != nil {
		return err
	}
	p.pagesWritten.Add(uint64(len(ids)))
	if p.mapped {
		for _, id := range ids {
			p.verified.add(id) // we wrote it ourselves
		}
	}
	return nil
}

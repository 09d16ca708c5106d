package txn

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// A backup is the pages of one checkpoint, streamed in the order of their numbers while commits and
// later checkpoints go on (ADR 0046). An increment has only the pages that are newer than the
// checkpoint of an earlier backup.
//
// The store writes one thing: the meta page of the checkpoint remembers the backup, before the
// stream begins. A crash at any point leaves a store that is as it was without the backup.

// BackupOptions are the options of Store.Backup.
type BackupOptions struct {
	Since    *Backup // an earlier backup; nil: a full one
	MadeAt   time.Time
	Progress func(done, total uint64) // pages; nil: none
}

// Backup writes a checkpoint, and then its pages to w. See kv.DB.Backup.
func (s *Store) Backup(ctx context.Context, w io.Writer, o BackupOptions) (*Backup, error) {
	s.open.Add(1)
	defer s.open.Add(-1)
	r := &backupRun{s: s, ctx: ctx, o: o}
	err := mapfault.Guard(s.Fault, r.begin)
	if r.slot != nil {
		defer r.slot.release()
	}
	if err == nil {
		err = r.list()
	}
	if err == nil {
		err = r.stream(w)
	}
	if err != nil {
		return nil, err
	}
	return &r.Backup, nil
}

// backupRun is the state of a call of Backup.
type backupRun struct {
	Backup
	s    *Store
	ctx  context.Context
	o    BackupOptions
	v    *version      // state of the checkpoint
	slot *snapshotSlot // keeps its pages
	used *pager.UsedSet
	sum  uint64 // of the references to them
}

// begin makes the checkpoint, whose meta page remembers the backup, and keeps its pages.
func (r *backupRun) begin() error {
	s, k := r.s, &r.s.checkpointer
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := lock(r.ctx, k.mu); err != nil {
		return err
	}
	defer func() { <-k.mu }()
	if err := r.checkBase(); err != nil {
		return err
	}
	k.backup = r
	defer func() { k.backup = nil }()
	for r.v == nil {
		c, err := k.runOnce(r.ctx)
		if err == nil && c == nil {
			err = r.rememberOnly()
		}
		if err != nil {
			return err
		}
	}
	m := s.pg.LastMeta()
	if k.closingMark != nil {
		m.ClockMark, _ = k.closingMark(r.v.mark)
	}
	r.Backup = Backup{
		StoreID: m.StoreID, ID: m.Backups[len(m.Backups)-1], Seq: m.Seq, PageSize: m.PageSize,
		StorePages: m.Pages, MadeAt: r.o.MadeAt, meta: &m,
	}
	if r.o.Since != nil {
		r.Base = r.o.Since.ID
	}
	return nil
}

// capture has m, of the newest version, remember the backup, and keeps the pages of that version from
// then on. Writer lock.
func (r *backupRun) capture(m *pager.Meta) {
	all := append(slices.Clone(m.Backups), pager.BackupID{Epoch: m.Epoch, ID: r.s.o.Rand() | 1})
	m.Backups = all[max(0, len(all)-pager.MostBackups):]
	r.v, r.slot = r.s.head, r.s.backups.pin(r.s.head, r.s.now())
}

// checkBase verifies that this store, and no copy of it, made the earlier backup.
func (r *backupRun) checkBase() error {
	since := r.o.Since
	if since == nil {
		return nil
	}
	m := r.s.pg.LastMeta()
	if since.StoreID != m.StoreID {
		return fmt.Errorf("%w: it is of store %x, this one is %x", ErrBackupBase, since.StoreID, m.StoreID)
	}
	for _, id := range m.Backups {
		if id == since.ID {
			return nil
		}
	}
	return fmt.Errorf("%w: it is none of the last %d of this store", ErrBackupBase, len(m.Backups))
}

// rememberOnly writes the meta page of a store in which no commit came after the last checkpoint.
func (r *backupRun) rememberOnly() error {
	s := r.s
	if err := s.lockWriter(r.ctx); err != nil {
		return err
	}
	defer s.unlockWriter()
	if s.checkpointer.hasUncaptured() {
		return nil
	}
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := s.pg.CheckIdentity(); err != nil {
		return s.fail(err)
	}
	if err := s.checkpointer.overwriteMeta(r.capture); err != nil {
		return s.fail(err)
	}
	if s.started {
		s.log.SetFollows(uint32(s.durable))
	}
	return nil
}

// list lists the pages of the stream, from the roots down.
func (r *backupRun) list() error {
	if err := contextErr(r.ctx); err != nil {
		return err
	}
	r.used = pager.NewUsedSet(r.StorePages)
	table := tree.Tree{Root: r.meta.Root, Depth: r.meta.RootDepth, Rows: r.meta.RootRows}
	err := r.listTree(table)
	r.v.trees.from(0, func(_ TreeID, t tree.Tree) bool {
		if err == nil {
			err = r.listTree(t)
		}
		return err == nil
	})
	r.Pages = r.used.Count()
	return r.closed(err)
}

func (r *backupRun) listTree(t tree.Tree) error {
	var pages [][]byte // one for each level
	page := func(ref pager.Ref, level uint8) ([]byte, error) {
		for len(pages) <= int(level) {
			pages = append(pages, make([]byte, r.PageSize))
		}
		return r.s.pg.Reader.ReadVerified(ref, r.meta.Epoch, pages[level])
	}
	return tree.Newer(page, t, r.Base.Epoch, func(ref pager.Ref, pages uint64) error {
		r.sum += pager.RefSum(ref)
		for i := range pages {
			if !r.used.Add(ref.Pgid + pager.Pgid(i)) {
				return r.damaged(ref.Pgid, "reached twice, or past the end of the file")
			}
		}
		return contextErr(r.ctx)
	})
}

// backupFrame is a frame of the stream: room for its header, and n pages from first on.
type backupFrame struct {
	first pager.Pgid
	n     uint64
	b     []byte
}

// stream writes the pages to w. Another goroutine reads and verifies the next frame meanwhile.
func (r *backupRun) stream(w io.Writer) error {
	e := &backupWriter{w: w}
	if err := e.begin(&r.Backup); err != nil {
		return err
	}
	frames, buffers := make(chan backupFrame), make(chan []byte, 2)
	for range cap(buffers) {
		buffers <- make([]byte, frameHeader+maxFrameBytes)
	}
	var readErr error
	go func() {
		defer close(frames)
		readErr = r.readFrames(frames, buffers)
	}()
	defer func() {
		close(buffers)
		for range frames { // until the reading goroutine has ended
		}
	}()
	for f := range frames {
		if err := e.frame(f.first, f.n, f.b); err != nil {
			return err
		}
		if buffers <- f.b[:cap(f.b)]; r.o.Progress != nil {
			r.o.Progress(e.pages, r.Pages)
		}
	}
	if readErr != nil {
		return readErr
	}
	if err := e.end(); err != nil {
		return err
	}
	r.Bytes = e.bytes
	return nil
}

// readFrames reads the pages from the file into buffers and verifies them, until all are sent or
// buffers is closed.
func (r *backupRun) readFrames(frames chan<- backupFrame, buffers <-chan []byte) error {
	v, most := r.s.pg.NewPageVerifier(), uint64(maxFrameBytes/r.PageSize)
	first, n := r.used.Run(0, most)
	for ; n > 0; first, n = r.used.Run(first+pager.Pgid(n), most) {
		if err := contextErr(r.ctx); err != nil {
			return err
		}
		b, ok := <-buffers
		if !ok {
			return nil
		}
		b = b[:frameHeader+int(n)*r.PageSize]
		err := r.s.pg.ReadPages(first, b[frameHeader:])
		if err == nil {
			err = v.Add(first, b[frameHeader:])
		}
		if err = r.closed(err); err != nil {
			return err
		}
		frames <- backupFrame{first, n, b}
	}
	if err := v.End(); err != nil {
		return err
	}
	if v.Sum() != r.sum {
		return r.damaged(0, "some page is older than the reference to it: a lost write; Check finds it")
	}
	return nil
}

func (r *backupRun) damaged(id pager.Pgid, detail string) error {
	return badfile.Page(r.s.path, uint64(id), -1, "%s", detail)
}

// closed is err, or what a Shutdown that closed the file makes of it.
func (r *backupRun) closed(err error) error {
	if !r.s.isOpen() {
		return ErrClosed
	}
	return err
}

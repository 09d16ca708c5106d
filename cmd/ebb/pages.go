package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

func pagesCommand(a *app) *cobra.Command {
	var l pageLister
	cmd := &cobra.Command{
		Use:   "pages STORE",
		Short: "List the raw pages of the main file",
		Long: `Pages lists the pages of the main file as they are, without opening the store: number,
kind, epoch (the checkpoint that wrote it), level above the leaves, cells, what the newest meta page
says about its use, and whether the checksum is right. Free pages may hold anything; a page in use
that is not sound is bad, and the exit code is 1.

An overflow extent that is sound is one line; one that is not is listed page by page. Where such
extents overlap, no more than a few are read in any one place: the checksum of another is unknown,
and if it is in use it is bad.

If both meta pages are damaged, --page-size is needed, and neither use nor checksums can be told.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.app = a
			if err := checkPageSize(cmd, l.pageSize); err != nil {
				return err
			}
			if err := l.open(cmd.Context(), args[0]); err != nil {
				return err
			}
			err := errors.Join(l.list(cmd.Context()), l.close())
			if err == nil && l.bad > 0 {
				return errSaid
			}
			return err
		},
	}
	cmd.Flags().IntVar(&l.pageSize, "page-size", 0, "page size of a file whose meta pages are both damaged")
	cmd.Flags().BoolVar(&l.onlyBad, "bad", false, "list only pages that are bad")
	return cmd
}

// pageLister reads the pages of one file in order.
type pageLister struct {
	app      *app
	pageSize int
	onlyBad  bool

	file  vfs.File
	bytes int64        // of the file when it was opened
	pgr   *pager.Pager // reports which pages are in use; nil if unknown
	salt  *uint64      // of the checksums; nil if no meta page is there to tell the store id
	ext   extentReader // of a file with a salt
	bad   int
}

// pageLine is what is known of one page, or of a whole overflow extent.
type pageLine struct {
	Pgid     uint64 `json:"pgid"`
	Pages    int64  `json:"pages"`
	Kind     string `json:"kind"`
	Epoch    uint32 `json:"epoch"`
	Level    uint8  `json:"level"`
	Count    uint16 `json:"count"`
	Use      string `json:"use"`      // used, free, unknown
	Checksum string `json:"checksum"` // ok, wrong, unknown
	Bad      bool   `json:"bad"`
	Detail   string `json:"detail,omitempty"`
}

// open opens the file, and the pager beside it for as much as it can tell. Both hold the shared
// lock.
func (l *pageLister) open(ctx context.Context, path string) (err error) {
	pgr, metas, err := openPager(ctx, path, l.app.wait)
	var corrupt *badfile.Error
	switch {
	case err == nil:
		newest := newestMeta(metas)
		l.pageSize = newest.PageSize
		salt := pager.Salt(newest.StoreID)
		l.salt = &salt
		// A pager that does not start leaves the use of pages unknown; the pages can be listed all
		// the same.
		if pgr.Start(newest) == nil {
			l.pgr = pgr
		} else if err := pgr.Close(); err != nil {
			return err
		}
	case errors.As(err, &corrupt) && l.pageSize != 0:
	case errors.As(err, &corrupt):
		return fmt.Errorf("pages: %w", marked{err, errNoMeta})
	default:
		return fmt.Errorf("pages: %w", err)
	}
	if l.file, err = vfs.OS.Open(path, 0); err == nil {
		l.bytes, err = l.file.Size()
	}
	if l.salt != nil {
		l.ext = extentReader{
			file:     l.file,
			bytes:    l.bytes,
			pageSize: int64(l.pageSize),
			salt:     *l.salt,
			ends:     map[string][]int64{},
		}
	}
	return err
}

func (l *pageLister) close() error {
	err := l.file.Close()
	if l.pgr != nil {
		err = errors.Join(err, l.pgr.Close())
	}
	return err
}

// openPager opens the main file for reading and waits up to wait for a process that writes it.
// Errors have the names of kv.
func openPager(ctx context.Context, path string, wait time.Duration) (*pager.Pager, [2]*pager.Meta, error) {
	for began := time.Now(); ; {
		pgr, metas, err := pager.Open(pager.Options{FS: vfs.OS, Path: path, ReadOnly: true, NoMap: true})
		if errors.Is(err, vfs.ErrLocked) && time.Since(began) < wait {
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-ctx.Done():
				return nil, metas, fmt.Errorf("open %s: %w", path, ctx.Err())
			}
		}
		return pgr, metas, unopened(openfs.OpenError(path, err), true)
	}
}

// newestMeta gives the valid meta page with the higher epoch; one of them is valid.
func newestMeta(metas [2]*pager.Meta) *pager.Meta {
	if metas[0] == nil || metas[1] != nil && metas[1].Epoch > metas[0].Epoch {
		return metas[1]
	}
	return metas[0]
}

const pageFormat = "%8v %6v %-14v %8v %6v %6v %-8v %v\n"

func (l *pageLister) list(ctx context.Context) error {
	if !l.app.json {
		fmt.Fprintf(l.app.out, pageFormat, "pgid", "pages", "kind", "epoch", "level", "count",
			"use", "checksum")
	}
	p := l.app.newProgress("pages", l.bytes, true)
	defer p.end()
	page := make([]byte, l.pageSize)
	var pages int64
	for off := int64(0); off < l.bytes; {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := l.page(page, off)
		if err != nil {
			return err
		}
		if line.Bad {
			l.bad++
		}
		if line.Bad || !l.onlyBad {
			if err := l.print(line); err != nil {
				return err
			}
		}
		pages += line.Pages
		p.add(line.Pages * int64(l.pageSize))
		off += line.Pages * int64(l.pageSize)
	}
	if !l.app.json {
		fmt.Fprintf(l.app.out, "%s of %d bytes, %d bad\n", plural(pages, "page"), l.pageSize, l.bad)
	}
	return nil
}

func (l *pageLister) print(line pageLine) error {
	if l.app.json {
		return l.app.printJSON(line)
	}
	checksum := line.Checksum
	if line.Detail != "" {
		checksum += "  " + line.Detail
	}
	_, err := fmt.Fprintf(
		l.app.out,
		pageFormat,
		line.Pgid,
		line.Pages,
		line.Kind,
		line.Epoch,
		line.Level,
		line.Count,
		line.Use,
		checksum,
	)
	return err
}

// page looks at the page at off, or at the whole overflow extent if a sound one begins there. page
// is one page long.
func (l *pageLister) page(page []byte, off int64) (pageLine, error) {
	id := pager.Pgid(off / int64(l.pageSize))
	line := pageLine{Pgid: uint64(id), Pages: 1, Use: l.use(id), Checksum: "unknown"}
	err := vfs.ReadFull(l.file, page, off)
	if err == io.ErrUnexpectedEOF {
		line.Kind, line.Bad, line.Detail = "-", line.Use != "free", "the file ends inside this page"
		return line, nil
	}
	if err != nil {
		return line, fmt.Errorf("read page %d: %w", id, err)
	}
	h := pager.ReadHeader(page)
	line.Kind, line.Epoch, line.Level, line.Count = h.Kind.String(), uint32(h.Epoch), h.Level, h.Count
	if h == (pager.Header{}) {
		line.Kind = "-"
	}
	if err := l.verify(&line, page, off, h.Kind == pager.KindOverflow && h.Pgid == id); err != nil {
		return line, err
	}
	switch {
	case line.Use == "free":
	case h.Pgid != id:
		line.Bad, line.Detail = true, fmt.Sprintf("says that it is page %d", h.Pgid)
	case line.Checksum == "wrong" || line.Detail != "":
		line.Bad = true
	}
	if line.Bad && line.Use == "unknown" && line.Kind == "-" {
		line.Bad = false // never written, for all we know
	}
	return line, nil
}

// verify checks the checksum of a page, or of the extent that it begins, which then is the line.
func (l *pageLister) verify(line *pageLine, page []byte, off int64, extent bool) (err error) {
	if l.salt == nil {
		return nil
	}
	pages := int64(1)
	if extent {
		pages = l.ext.claim(page, off)
	}
	sound := false
	switch {
	case pages == 1:
		sound = pager.ChecksumMatches(page, *l.salt)
	case !l.ext.granted(line.Use, off):
		line.Detail = fmt.Sprintf("an extent of %s among others that overlap: not read",
			plural(pages, "page"))
		return nil
	default:
		sound, err = l.ext.sealed(line.Use, page, off, pages)
	}
	line.Checksum = "wrong"
	if sound {
		line.Checksum, line.Pages = "ok", pages
	}
	return err
}

// use asks the free map of the newest meta page.
func (l *pageLister) use(id pager.Pgid) string {
	if l.pgr == nil {
		return "unknown"
	}
	if uint64(id) >= l.pgr.Alloc.Pages() {
		return "free"
	}
	used, err := l.pgr.Alloc.InUse(id)
	switch {
	case err != nil:
		return "unknown"
	case used || id < 2:
		return "used"
	}
	return "free"
}

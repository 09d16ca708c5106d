package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"unicode/utf8"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// What the map shows of a page.
const (
	pageUsed    = "used"    // proves
	pageFree    = "free"    // may hold anything
	pageBad     = "bad"     // in use, and does not prove
	pageUnknown = "unknown" // no free map says whether it is in use
)

// Bounds of an answer with pages.
const (
	mostPages      = 4096
	mostPageBytes  = 32 << 20 // read for one answer
	mostExtent     = 64 << 20 // a larger extent is not verified
	mostEntries    = 400
	mostEntryBytes = 120 // of a key or value in the list
)

// pageInfo is one page of the map.
type pageInfo struct {
	Pgid   uint64 `json:"pgid"`
	State  string `json:"state"`
	Kind   string `json:"kind"`
	Tree   int    `json:"tree"` // index in the list of trees; -1: none, or not known yet
	Fill   int    `json:"fill"` // percent of a leaf or branch; -1: unknown
	Birth  uint32 `json:"birth"`
	Level  uint8  `json:"level"`
	Count  uint16 `json:"count"`
	Detail string `json:"detail,omitempty"`

	end pager.Pgid // of the extent that it begins, if that was verified
}

const continued = "overflow, continued"

// apiPages gives a part of the map.
func (s *Server) apiPages(r *http.Request) (answer any, err error) {
	from, err := number(r, "from", 0, 1<<50)
	if err != nil {
		return nil, err
	}
	n, err := number(r, "n", 1024, mostPages)
	if err != nil {
		return nil, err
	}
	err = s.read(r, func(t *state) (damaged bool, err error) {
		size := int64(t.raw.PageSize())
		last := min(from+min(n, mostPageBytes/size), int64(t.raw.Pages()))
		list, buf, budget := []pageInfo{}, make([]byte, size), uint64(mostPageBytes)
		end := pager.Pgid(0) // of the last extent that proves: all pages before it are its
		for id := from; id < last; id++ {
			if err := r.Context().Err(); err != nil {
				return false, err
			}
			p := t.page(pager.Pgid(id), buf, &budget)
			if pager.Pgid(id) < end && p.Kind != continued {
				p = pageInfo{Pgid: p.Pgid, State: t.use(pager.Pgid(id)), Kind: continued, Tree: -1, Fill: -1}
			}
			end = max(end, p.end)
			damaged = damaged || p.State == pageBad
			list = append(list, p)
		}
		answer = map[string]any{
			"from": from, "pages": list, "all": t.raw.Pages(), "page_size": size,
			"cut_bytes": t.raw.Bytes() % size,
		}
		return damaged, nil
	})
	return answer, err
}

// page looks at a page; b gets its bytes. budget bounds the bytes of extents that are verified.
func (t *state) page(id pager.Pgid, b []byte, budget *uint64) pageInfo {
	owner, inside := t.walk.ownerOf(id)
	p := pageInfo{Pgid: uint64(id), State: t.use(id), Kind: "-", Tree: owner, Fill: -1}
	bad := t.raw.Look(id, b)
	if inside {
		p.Kind = continued
		return p
	}
	h := pager.ReadHeader(b)
	if h.Kind == pager.KindOverflow && h.Pgid == id {
		p.end, bad = t.extent(b, budget)
	}
	switch {
	case id < 2:
		p.Kind = pager.KindMeta.String()
	case h != pager.Header{}:
		p.Kind, p.Birth, p.Level, p.Count = h.Kind.String(), uint32(h.Epoch), h.Level, h.Count
	}
	if m := t.raw.Metas(); id < 2 && m[id] != nil {
		p.Birth = uint32(m[id].Epoch)
	}
	if bad == nil && (h.Kind == pager.KindLeaf || h.Kind == pager.KindBranch) {
		if bad = tree.CheckPage(b, len(b)); bad == nil {
			p.Fill = min(100*tree.UsedBytes(b)/(len(b)-pager.HeaderSize-8), 100)
		}
	}
	if bad == nil {
		return p
	}
	switch {
	case id == 1 && t.meta != nil && t.meta.Epoch == 1: // no session has written to this store
	case p.State == pageUsed && (owner >= 0 || h.Pgid == id || !t.mayBeInside(id)):
		p.State, p.Detail = pageBad, bad.Error()
	case p.State == pageUsed:
		p.State = pageUnknown
	}
	if p.State != pageBad && h.Pgid != id {
		p.Kind, p.Birth, p.Level, p.Count = "-", 0, 0, 0
	}
	return p
}

// use is what the free map says of a page.
func (t *state) use(id pager.Pgid) string {
	switch {
	case id < 2 || t.used.Has(id):
		return pageUsed
	case t.known.Has(id), t.meta != nil && uint64(id) >= t.meta.Pages: // behind the last page that was in use
		return pageFree
	}
	return pageUnknown
}

// mayBeInside says whether a page in use may be a part of an extent that the walk has not come to, or
// that damage hides from it: such a page has no header, and does not prove by itself.
func (t *state) mayBeInside(id pager.Pgid) bool {
	w := t.walk
	w.mu.Lock()
	defer w.mu.Unlock()
	return id >= 2 && (!w.done || w.moved || w.found > 0 || uint64(id) >= uint64(len(w.owner)))
}

// extent verifies the extent that begins with head, unless it is larger than what is left of budget.
func (t *state) extent(head []byte, budget *uint64) (end pager.Pgid, err error) {
	ref, size := pager.ExtentOf(head)
	if size > *budget {
		return 0, nil
	}
	*budget -= size
	if _, err = t.raw.Extent(ref, int(size)); err != nil {
		return 0, err
	}
	return ref.Pgid + pager.Pgid(pager.ExtentPages(int(size), len(head))), nil
}

// entry is a cell of a leaf, or a child of a branch.
type entry struct {
	Key     []byte `json:"key"`
	KeySize int    `json:"key_size"`
	// of a leaf
	Size   int    `json:"size"`
	Value  []byte `json:"value,omitempty"` // of an inline value
	Expiry int64  `json:"expiry,omitempty"`
	Large  bool   `json:"large,omitempty"` // the value is in an extent
	// of a branch
	Child uint64 `json:"child,omitempty"`
	Rows  uint64 `json:"rows,omitempty"`
}

// apiPage gives the contents of one page.
func (s *Server) apiPage(r *http.Request) (answer any, err error) {
	n, err := number(r, "id", 0, 1<<50)
	if err != nil {
		return nil, err
	}
	err = s.read(r, func(t *state) (bool, error) {
		id := pager.Pgid(n)
		if uint64(id) >= t.raw.Pages() {
			return false, badRequest{fmt.Errorf("the file has %d pages", t.raw.Pages())}
		}
		b := make([]byte, t.raw.PageSize())
		budget := uint64(mostExtent)
		p := t.page(id, b, &budget)
		a := map[string]any{"page": p, "bytes": b}
		if p.Tree >= 0 {
			a["tree"] = t.walk.trees[p.Tree].name() // trees do not change once there is an owner
		}
		switch h := pager.ReadHeader(b); {
		case id < 2:
			a["meta"] = metaPages(t.raw)[id]
		case p.Fill >= 0:
			a["entries"] = entries(t, h, b)
		case h.Kind == pager.KindOverflow && h.Pgid == id && p.Kind == h.Kind.String():
			_, size := pager.ExtentOf(b)
			a["value_size"], a["text"] = size, utf8.Valid(b[pager.ExtentHeader:])
		}
		answer = a
		return p.State == pageBad, nil
	})
	return answer, err
}

func cut(b []byte) []byte { return bytes.Clone(b[:min(len(b), mostEntryBytes)]) }

// entries lists those of a leaf or branch that proves, the first ones.
func entries(t *state, h pager.Header, b []byte) (list []entry) {
	list = []entry{}
	if h.Kind == pager.KindBranch {
		tree.EachChild(b, func(sep []byte, ref pager.Ref, rows uint64) {
			e := entry{Key: cut(sep), KeySize: len(sep), Child: uint64(ref.Pgid), Rows: rows}
			if len(list) < mostEntries {
				list = append(list, e)
			}
		})
		return list
	}
	c, root := new(tree.Cursor), pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch}
	c.Reset(&onePage{b: b}, tree.Tree{Root: root, Depth: 1, Rows: uint64(h.Count)})
	for ok := c.First(); ok && len(list) < mostEntries; ok = c.Next() {
		e := entry{Key: cut(c.Key()), KeySize: len(c.Key()), Size: c.Size(), Expiry: c.Tag()}
		if value, err := c.ReadValue(); err == nil {
			e.Value = cut(value)
		} else {
			e.Large = true
		}
		list = append(list, e)
	}
	return list
}

// onePage is the btree.Reader of one leaf that was read before.
type onePage struct {
	tree.NoHints
	b []byte
}

func (o *onePage) PageSize() int                                 { return len(o.b) }
func (o *onePage) Page(pager.Ref) ([]byte, error)                { return o.b, nil }
func (o *onePage) Leaf(pager.Ref) (b, changes []byte, err error) { return o.b, nil, nil }
func (o *onePage) Extent(pager.Ref, int) ([]byte, error)         { return nil, errLarge }

var errLarge = fmt.Errorf("the value is elsewhere")

package ui

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
)

// family is what the page shows of a family.
type family struct {
	Name        string `json:"name"`
	Rows        int64  `json:"rows"` // stored
	TTLRows     int64  `json:"ttl_rows"`
	Due         int64  `json:"due"`         // expired and stored
	NextExpiry  int64  `json:"next_expiry"` // ms; 0: none
	DefaultTTL  int64  `json:"default_ttl_ms"`
	Retention   int64  `json:"retention_ms"`
	Partitioned bool   `json:"partitioned"`
	Error       string `json:"error,omitempty"`
}

// metaPage is one valid meta page: a checkpoint that recovery may begin from.
type metaPage struct {
	Slot       int      `json:"slot"`
	Valid      bool     `json:"valid"`
	Checkpoint uint32   `json:"checkpoint"`
	Seq        uint64   `json:"seq"`
	Clean      bool     `json:"clean"`
	LogStart   uint64   `json:"log_start"`
	ClockMark  int64    `json:"clock_mark"` // ms; 0: none
	Pages      uint64   `json:"pages"`
	Backups    []string `json:"backups"`
}

func metaPages(raw *pager.RawFile) (list []metaPage) {
	for slot, m := range raw.Metas() {
		p := metaPage{Slot: slot, Backups: []string{}}
		if m != nil {
			p = metaPage{
				Slot: slot, Valid: true, Checkpoint: uint32(m.Epoch), Seq: m.Seq, Clean: m.Clean,
				LogStart: m.LogStart, ClockMark: m.ClockMark, Pages: m.Pages, Backups: p.Backups,
			}
			for _, b := range m.Backups {
				p.Backups = append(p.Backups, fmt.Sprintf("%016x of checkpoint %d", b.ID, b.Epoch))
			}
		}
		list = append(list, p)
	}
	return list
}

// apiStore gives what is known of the store as a whole.
func (s *Server) apiStore(r *http.Request) (answer any, err error) {
	err = s.read(r, func(t *state) (bool, error) {
		a := map[string]any{
			"path": s.o.Path, "at": t.at.UnixMilli(), "now": s.o.Clock().UnixMilli(),
			"holder":    vfs.HolderOf(vfs.Follow(s.o.Path)),
			"page_size": t.raw.PageSize(), "file_bytes": t.raw.Bytes(), "pages": t.raw.Pages(),
			"used_pages": t.used.Count(), "known_pages": t.known.Count(),
			"metas": metaPages(t.raw), "walk": t.walk.progress(), "families": []family{},
		}
		if t.meta != nil {
			a["store_id"], a["checkpoint"] = hex.EncodeToString(t.meta.StoreID[:]), t.meta.Epoch
		}
		if disk, ok := vfs.DiskBytes(vfs.Follow(s.o.Path)); ok {
			a["disk_bytes"] = disk
		}
		if t.db == nil {
			a["error"] = t.openErr.Error()
			answer = a
			return false, nil
		}
		stats := t.db.Stats()
		list, damaged := families(t.db, &stats)
		a["families"], a["recovery"] = list, t.db.RecoveryInfo()
		stats.Families, stats.Partitions = nil, nil
		a["stats"] = stats
		answer = a
		return damaged, nil
	})
	return answer, err
}

// families lists them by name; a damaged catalog hides some.
func families(db *kv.DB, stats *kv.Stats) (list []family, damaged bool) {
	list = []family{}
	for _, name := range slices.Sorted(maps.Keys(stats.Families)) {
		if len(list) == mostListed {
			break
		}
		n := stats.Families[name]
		f := family{Name: name, Rows: n.Rows, TTLRows: n.TTLRows, Due: n.Due}
		o, err := db.CFOptions(name)
		if err == nil {
			f.DefaultTTL, f.Retention = o.DefaultTTL.Milliseconds(), o.Retention.Milliseconds()
			f.Partitioned = o.Retention > 0
		}
		at, ok, nextErr := db.CF(name).NextExpiry()
		if ok {
			f.NextExpiry = at.UnixMilli()
		}
		if err = errors.Join(err, nextErr); err != nil {
			f.Error, damaged = err.Error(), damaged || errors.Is(err, kv.ErrCorrupt)
		}
		list = append(list, f)
	}
	return list, damaged
}

// errNoRows is what calls for rows get of a store that cannot be opened.
func (t *state) errNoRows() error {
	if t.db != nil {
		return nil
	}
	return t.openErr
}

// bin counts the keys that expire in [From, To).
type bin struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	Keys int64 `json:"keys"`
}

// spans are what the histogram shows, each cut into bins of one width.
var spans = []struct {
	name string
	bins int
	each time.Duration
}{
	{"minute", 30, 2 * time.Second},
	{"hour", 30, 2 * time.Minute},
	{"day", 24, time.Hour},
}

// mostSoon is the number of keys that are listed by their expiries.
const mostSoon = 50

// soon is a key that expires.
type soon struct {
	Key []byte `json:"key"`
	At  int64  `json:"at"`
}

// apiExpiry counts what expires in the next minute, hour and day, in time independent of the number
// of keys, and lists the keys that are next.
func (s *Server) apiExpiry(r *http.Request) (answer any, err error) {
	name := r.URL.Query().Get("family")
	err = s.read(r, func(t *state) (bool, error) {
		if err := t.errNoRows(); err != nil {
			return false, err
		}
		return false, t.db.View(func(tx *kv.Tx) error {
			now := tx.Now()
			due, err := openfs.DueAt(tx, name, now)
			if err != nil {
				return err
			}
			a := map[string]any{"now": now.UnixMilli(), "due": due}
			for _, span := range spans {
				bins, last := []bin{}, due
				for i := range span.bins {
					b := bin{From: now.Add(time.Duration(i) * span.each).UnixMilli()}
					b.To = b.From + span.each.Milliseconds()
					total, err := openfs.DueAt(tx, name, time.UnixMilli(b.To-1))
					if err != nil {
						return err
					}
					b.Keys, last = max(total-last, 0), max(total, last)
					bins = append(bins, b)
				}
				a[span.name] = bins
			}
			if a["soon"], err = next(tx, name, now); err != nil {
				return err
			}
			answer = a
			return nil
		})
	})
	return answer, err
}

// next lists the keys that expire next. A time-partitioned family has no order of expiry but that of
// its rows.
func next(tx *kv.Tx, name string, now time.Time) ([]soon, error) {
	list, size := []soon{}, 0
	if o, err := tx.CFOptions(name); err != nil || o.Retention > 0 {
		return list, err
	}
	for key, at := range tx.CF(name).Expiring(now.Add(365 * 24 * time.Hour)) {
		if at.After(now) {
			list = append(list, soon{slices.Clone(key), at.UnixMilli()})
		}
		if size += len(key); len(list) == mostSoon || size > mostBytes {
			break
		}
	}
	return list, tx.Err()
}

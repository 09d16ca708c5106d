package salvage

// A Report says what was saved, and what was not.
type Report struct {
	PageSize int `json:"page_size"`
	// MetaPages is the number of valid meta pages: without one, page size and checksums are those
	// that most pages agree on.
	MetaPages  int      `json:"meta_pages"`
	Checkpoint uint32   `json:"checkpoint"` // number of the checkpoint whose state was saved
	Families   []Family `json:"families"`
	// LostFound are rows that were saved and whose family is unknown, in families lost+found-N.
	LostFound int64 `json:"lost_found_rows"`
	// UnknownRows are rows on pages in use of an unknown tree, perhaps one of the engine's own;
	// StaleRows are rows on pages of which nothing says that they are in use. With Options.Stale they
	// are saved.
	UnknownRows int64    `json:"unknown_rows"`
	StaleRows   int64    `json:"stale_rows"`
	Notes       []string `json:"notes"` // what is lost beside rows
	Log         Log      `json:"log"`
	Whole       bool     `json:"whole"` // nothing is missing
}

// Family is what became of one family.
type Family struct {
	Name    string `json:"name"`
	Saved   int64  `json:"saved"`   // rows from pages
	Missing int64  `json:"missing"` // rows that the store counted and that are not saved
	// Older is the number of the checkpoint whose state was saved, if it is not the newest one: the
	// newer root of the family is lost.
	Older uint32 `json:"older,omitempty"`
	Gaps  []Gap  `json:"gaps"`           // the first ones
	More  int64  `json:"more,omitempty"` // gaps that are not in Gaps
}

// Gap is a range of keys with missing rows, or the one key whose value is lost.
type Gap struct {
	Lower []byte `json:"-"` // nil: no bound
	Upper []byte `json:"-"`
	Key   []byte `json:"-"`
	Rows  int64  `json:"rows"`
	Page  uint64 `json:"page"`
	Why   string `json:"why"`
}

// Log is what became of the log.
type Log struct {
	Taken   bool   `json:"taken"`   // Options.Log
	Commits int64  `json:"commits"` // in the log, behind the checkpoint, up to damage
	Why     string `json:"why,omitempty"`
}

// mostGaps bounds the list of each family. Their rows are all counted.
const mostGaps = 1000

func (f *Family) gap(g Gap) {
	if g.Rows <= 0 {
		return
	}
	f.Missing += g.Rows
	if len(f.Gaps) == mostGaps {
		f.More++
		return
	}
	f.Gaps = append(f.Gaps, g)
}

// whole says whether the report has nothing that is missing.
func (r *Report) whole() bool {
	for _, f := range r.Families {
		if f.Missing > 0 || f.Older != 0 {
			return false
		}
	}
	lost := r.LostFound + r.UnknownRows + r.StaleRows
	return lost == 0 && len(r.Notes) == 0 && (r.Log.Taken || r.Log.Commits == 0) && r.Log.Why == ""
}

func (r *rescue) note(text string) { r.report.Notes = append(r.report.Notes, text) }

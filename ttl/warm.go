package ttl

import "github.com/ebbkv/ebb/txn"

// WarmKeys is how many keys a Warmer takes.
const WarmKeys = txn.WarmKeys

// A Warmer lists up to WarmKeys keys that are about to be written.
type Warmer struct {
	keys [WarmKeys][]byte
	n    int

	// Of the first m keys that get an expiry: the keys, and their expiry rows one behind the other, as far as there is room.
	timed [WarmKeys][]byte
	due   [WarmKeys * 48]byte
	ends  [WarmKeys]int
	m     int
}

// Add lists a key, and the expiry that it gets: 0 for none. The key must stay as it is until Warm.
func (w *Warmer) Add(key []byte, expiry int64) {
	w.keys[w.n] = key
	w.n++
	if expiry == 0 {
		return
	}
	from := w.end(w.m - 1)
	to := from + expirySize + len(key)
	if to > len(w.due) {
		return
	}
	appendDue(w.due[from:from:to], expiry, key)
	w.timed[w.m], w.ends[w.m] = key, to
	w.m++
}

func (w *Warmer) end(i int) int {
	if i < 0 {
		return 0
	}
	return w.ends[i]
}

// Warm asks the processor for what writing these keys will need, for all of them at once, just before they are written: see
// txn.Tx.Warm.
func (r Rows) Warm(w *Warmer) error {
	if r.Family.Hollow() {
		return nil
	}
	if err := r.Tx.Warm(r.Family.Data(), w.keys[:w.n]); err != nil || w.m == 0 {
		return err
	}
	if err := r.Tx.Warm(r.Family.KeyIndex(), w.timed[:w.m]); err != nil {
		return err
	}
	var due [WarmKeys][]byte
	for i := range due[:w.m] {
		due[i] = w.due[w.end(i-1):w.ends[i]]
	}
	return r.Tx.Warm(r.Family.ExpiryIndex(), due[:w.m])
}

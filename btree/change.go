package btree

// A Change puts a row or deletes one.
type Change struct {
	Key, Value []byte
	Tag        int64 // 0 for none
	// Delete deletes the row. Tag is ignored then, and a Value that is not nil is the inline value
	// that the row must have to be found.
	Delete bool
}

// Apply applies c and returns the Info of the old row. A deletion resets the cursor.
func (f *InsertCursor) Apply(w Writer, t *Tree, c *Change) (was Info, err error) {
	if !c.Delete {
		return f.Put(w, t, c.Key, c.Value, c.Tag)
	}
	was, err = DeleteOnly(w, t, c.Key, c.Value)
	if was.Found {
		f.reset()
	}
	return was, err
}

package btree

// freeExtent gives back the extent of the cell at off, if it has one.
func (e *editor) freeExtent(b []byte, off int) error {
	info := infoAt(b, off)
	if info&infoOverflow == 0 {
		return nil
	}
	return e.w.FreeExtent(overflowAt(b, off), int(info&infoSize))
}

package btree

// Rank counts the rows of the tree whose keys are below key. It reads one page of each level:
// branches have the row counts of their children.
func Rank(r Reader, t Tree, key []byte) (rows uint64, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return 0, err
	}
	ref := t.Root
	for level := t.Depth - 1; ; level-- {
		b, n, err := pageAt(r, ref, level)
		if err != nil {
			return 0, err
		}
		if level == 0 {
			i, _, _ := leafSearch(b, n, key)
			return rows + uint64(i), nil
		}
		i := branchSearch(b, n, key)
		for j := range i {
			rows += rowsBelow(b, n, j)
		}
		ref = childRef(b, n, i)
	}
}

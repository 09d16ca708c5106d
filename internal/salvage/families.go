package salvage

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// A source is one tree whose rows are those of a family, or of one of its partitions.
type source struct {
	family *family
	from   txn.TreeID // in the damaged store
	to     txn.TreeID // in the new one
	state  *treeState
}

// family is a family that is to be saved.
type family struct {
	entry   *cf.Family
	report  *Family
	sources []*source
}

// findFamilies reads the catalog and the metadata of all families, and gives a family to each tree
// that belongs to none.
func (r *rescue) findFamilies() error {
	catalog := r.trees[txn.CatalogTree]
	if catalog == nil {
		r.note("the catalog, with the names and settings of families")
	} else {
		catalog.role = roleCatalog
		if err := r.readCatalog(catalog); err != nil {
			return err
		}
	}
	slices.SortFunc(r.families, func(a, b *family) int { return strings.Compare(a.entry.Name, b.entry.Name) })
	for _, f := range r.families {
		if err := r.claim(f); err != nil {
			return err
		}
	}
	return r.adopt()
}

func (r *rescue) readCatalog(catalog *treeState) error {
	return r.view.fresh().walk(catalog.tree, func(c *tree.Cursor) error {
		value, err := c.ReadValue()
		if err == nil {
			var f *cf.Family
			if f, err = cf.DecodeEntry(c.Key(), value); err == nil && !r.taken(f.Base) {
				r.addFamily(f)
				return nil
			}
		}
		r.note(fmt.Sprintf("catalog: family %q: %v", c.Key(), err))
		return nil
	}, func(g tree.Gap) error {
		r.note(fmt.Sprintf("catalog: %d families: %v", g.Rows, g.Err))
		return nil
	})
}

func (r *rescue) addFamily(entry *cf.Family) *family {
	f := &family{entry: entry, report: &Family{Name: entry.Name, Gaps: []Gap{}}}
	r.families = append(r.families, f)
	for id := entry.Base; id < entry.Base+4; id++ {
		r.owner[id] = f
	}
	return f
}

// claim finds the trees of a family.
func (r *rescue) claim(f *family) error {
	e := f.entry
	for _, id := range []txn.TreeID{e.KeyIndex(), e.ExpiryIndex()} {
		if t := r.trees[id]; t != nil {
			t.role = roleIndex
		}
	}
	if t := r.trees[e.Data()]; t != nil {
		r.addSource(f, e.Data(), t)
	} else {
		r.note(fmt.Sprintf("family %q: all of its rows: tree %d is lost", e.Name, e.Data()))
	}
	meta := r.trees[e.Metadata()]
	if meta == nil {
		return nil
	}
	meta.role = roleMetadata
	return r.view.fresh().walk(meta.tree, func(c *tree.Cursor) error {
		value, err := c.ReadValue()
		var p *cf.Partition
		if err == nil {
			p, err = cf.DecodeMetadata(c.Key(), value)
		}
		if err != nil {
			r.note(fmt.Sprintf("family %q: %q: %v", e.Name, c.Key(), err))
			return nil
		}
		if p != nil && !r.claimPartition(f, p) {
			return nil
		}
		r.metadata = append(r.metadata, metadataRow{f, bytes.Clone(c.Key()), bytes.Clone(value)})
		return nil
	}, func(g tree.Gap) error {
		r.note(fmt.Sprintf("family %q: its sequence, or %d partitions: %v", e.Name, g.Rows, g.Err))
		return nil
	})
}

// metadataRow is a row of the metadata tree of a family.
type metadataRow struct {
	family     *family
	key, value []byte
}

// claimPartition gives the tree of a partition to its family. A partition whose tree is lost has no
// rows.
func (r *rescue) claimPartition(f *family, p *cf.Partition) bool {
	t := r.trees[p.Tree]
	if t == nil || r.owner[p.Tree] != nil {
		r.note(fmt.Sprintf("family %q: the rows of partition %d to %d: tree %d is lost",
			f.entry.Name, p.Start, p.Last, p.Tree))
		return false
	}
	r.owner[p.Tree] = f
	r.addSource(f, p.Tree, t)
	return true
}

func (r *rescue) addSource(f *family, id txn.TreeID, t *treeState) {
	f.sources = append(f.sources, &source{family: f, from: id, to: id, state: t})
	f.report.Older = max(f.report.Older, uint32(t.older))
}

// taken reports whether a tree of a family from base on belongs to another one.
func (r *rescue) taken(base txn.TreeID) bool {
	for id := base; id < base+4; id++ {
		if r.owner[id] != nil {
			return true
		}
	}
	return false
}

// A family of unknown settings keeps its partitions for a hundred years.
const unknownRetentionMs = 100 * 365 * 24 * 3600 * 1000

// adopt makes families of the trees that belong to none: the catalog has lost them. Their indexes
// and their metadata are told by their rows.
func (r *rescue) adopt() error {
	var lost []txn.TreeID
	for _, id := range slices.Sorted(maps.Keys(r.trees)) {
		t := r.trees[id]
		switch {
		case t.role != roleData || r.owner[id] != nil || t.tree.Rows == 0:
		case r.isIndexPair(id, id+1):
			t.role, r.trees[id+1].role = roleIndex, roleIndex
		case r.isMetadata(t):
			t.role = roleMetadata
			if base := r.trees[id-3]; base != nil && base.tree.Rows == 0 && r.owner[id-3] == nil {
				lost = append(lost, id-3) // its rows are in partitions
			}
		default:
			lost = append(lost, id)
		}
	}
	slices.Sort(lost)
	for _, id := range lost { // partitions are claimed by the family before them
		if r.owner[id] != nil || !r.isBase(id, lost) {
			continue
		}
		f := r.addFamily(&cf.Family{Name: r.freeName(id), Base: id, Options: r.lostOptions(id)})
		if err := r.claim(f); err != nil {
			return err
		}
	}
	for _, id := range lost {
		if r.owner[id] != nil {
			continue
		}
		f := r.addFamily(&cf.Family{Name: r.freeName(id), Base: r.nextBase})
		r.nextBase += 4
		r.moved[id] = f.entry.Base
		f.sources = append(f.sources, &source{family: f, from: id, to: f.entry.Base, state: r.trees[id]})
	}
	return nil
}

// isBase reports whether a tree without a family is the data tree of one: the three numbers behind
// it are free, or those of its own trees.
func (r *rescue) isBase(id txn.TreeID, lost []txn.TreeID) bool {
	for next := id + 1; next < id+4; next++ {
		if r.owner[next] != nil || slices.Contains(lost, next) {
			return false
		}
	}
	return true
}

func (r *rescue) freeName(id txn.TreeID) string {
	name := fmt.Sprintf("tree-%d", id)
	for slices.ContainsFunc(r.families, func(f *family) bool { return f.entry.Name == name }) {
		name += "+"
	}
	return name
}

// lostOptions are the settings of a family without a catalog entry. A partition tells its width.
func (r *rescue) lostOptions(base txn.TreeID) (o cf.Options) {
	t := r.trees[base+3]
	if t == nil || t.role != roleMetadata {
		return o
	}
	_ = r.view.fresh().walk(t.tree, func(c *tree.Cursor) error {
		value, err := c.ReadValue()
		if err != nil {
			return nil
		}
		if p, err := cf.DecodeMetadata(c.Key(), value); err == nil && p != nil {
			o = cf.Options{RetentionMs: unknownRetentionMs, PartitionMs: max(p.Last-p.Start+1, 1)}
		}
		return nil
	}, func(tree.Gap) error { return nil })
	return o
}

// isIndexPair reports whether two trees are the indexes of a family: the first row of the key index
// is in the expiry index.
func (r *rescue) isIndexPair(keys, expiries txn.TreeID) bool {
	k, e := r.trees[keys], r.trees[expiries]
	if k == nil || e == nil {
		return false
	}
	key, value, ok := r.view.first(k.tree)
	if !ok || len(value) != 8 {
		return false
	}
	due := append(bytes.Clone(value), key...)
	c := new(tree.Cursor)
	c.Reset(r.view.once(), e.tree)
	return c.Seek(due) && bytes.Equal(c.Key(), due) && c.Size() == 0
}

func (r *rescue) isMetadata(t *treeState) bool {
	key, value, ok := r.view.first(t.tree)
	if !ok {
		return false
	}
	_, err := cf.DecodeMetadata(key, value)
	return err == nil
}

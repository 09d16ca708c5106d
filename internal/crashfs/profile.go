package crashfs

import (
	"iter"
	"strings"
)

// Profile is a set of ways in which a crash may treat what is pending.
type Profile uint16

// The profiles.
const (
	Kill    Profile = 1 << iota // the process dies: everything is kept
	None                        // nothing pending is kept
	Prefix                      // each prefix of what is pending, in order
	Reorder                     // subsets of what is pending
	Torn512                     // one of the last writes is torn into sectors
	Torn4K                      // one of the last writes is torn into blocks
	Shorn                       // as Torn512, and the lost sectors are noise
	Dirs                        // subsets of the entry changes; renames come apart
	Size                        // sizes are lost, those that SyncData made durable too
	Stale                       // what is lost of new space holds old content of the disk

	AllProfiles = Stale<<1 - 1
)

var profileNames = []string{
	"kill", "none", "prefix", "reorder", "torn512", "torn4k", "shorn", "dirs", "size", "stale",
}

// String names the profiles, joined by "|".
func (p Profile) String() string {
	var names []string
	for i, name := range profileNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// ParseProfile is the inverse of String for one profile.
func ParseProfile(name string) (Profile, bool) {
	for i, n := range profileNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// The bounds of the enumerations. Beyond them, what is enumerated is no longer all there is.
const (
	allSubsets    = 10  // Reorder: up to so many changes, each subset
	allPairs      = 48  // Reorder: up to so many, each pair alone and each pair lost
	allEntries    = 8   // Dirs: up to so many entry changes, each subset
	allFiles      = 8   // Reorder: up to so many files, each product of all or none per file
	allSectors    = 64  // Torn512, Shorn: of a longer write, only its ends and every eighth sector
	lastWrites    = 4   // Torn512, Torn4K, Shorn: how many writes are torn
	randomSubsets = 64  // Reorder: per keep rate
	staleBlocks   = 128 // Stale: up to so many blocks, each lost alone and each prefix
)

// ImageOptions choose images. The zero value means all profiles at all crash points.
type ImageOptions struct {
	Profiles Profile // 0 is AllProfiles
	From     int     // first crash point
	To       int     // crash point to stop before; 0 is after the last one
	Every    int     // take only crash points that are multiples of this; 0 is 1
	// Random, if above 0, makes Reorder and Dirs take only so many random subsets at a crash point.
	Random int
	Seed   uint64 // of all random choices
	// OneOf, if not nil, says of how many images of a profile one is taken, 1 meaning all. Seed
	// chooses which. The others are not even built, which is most of the work that an image costs
	// here.
	OneOf func(Profile) int
	// Seen leaves out images that were yielded before with the same bytes and the same
	// expectations. nil means only those of this run. Runs that share it and whose bytes could mean
	// different states need different Salts.
	Seen *Seen
	Salt uint64
	// Expects, if not nil, names what images from a crash point must hold beyond what Acked says.
	// Where the name changes, bytes that were yielded before are yielded again.
	Expects func(point int) uint64
}

// Images goes through the crash points in order and yields each different image.
func (d *Disk) Images(opts ImageOptions) iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		if opts.Profiles == 0 {
			opts.Profiles = AllProfiles
		}
		if opts.Seen == nil {
			opts.Seen = NewSeen()
		}
		ops, final := d.snapshot()
		if opts.To == 0 || opts.To > len(ops)+1 {
			opts.To = len(ops) + 1
		}
		e := &enumeration{opts: &opts, yield: yield}
		w := newWalker(d.base, d.dead, ops)
		for at := 0; at < opts.To && !e.stopped; at++ {
			if at > 0 {
				w.step()
			}
			if at >= opts.From && (opts.Every <= 1 || at%opts.Every == 0) {
				e.p.at(w, final)
				e.all()
			}
		}
	}
}

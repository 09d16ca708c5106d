package vfs

import (
	"os"
	"path/filepath"
)

// Follow is the file that path leads to if it is a symbolic link, which need not be there, else
// path. Whoever keeps files beside another one asks for it first: beside a link they are beside
// nothing when the file is opened by its own name, and a rename would take the link's place. What
// cannot be told is path again, for its open to say why.
func Follow(path string) string {
	const most = 40 // links that lead to links, as systems allow
	at := path
	for range most {
		to, err := os.Readlink(at)
		if err != nil {
			return at
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(at)
			to = dir + to
		}
		// The directory by its own name: ".." behind a link is not what it seems to be, and
		// path/filepath takes it for that.
		dir, base := filepath.Split(to)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			to = filepath.Join(real, base)
		}
		at = to
	}
	return path
}

package vfs

import (
	"os"
	"path/filepath"
)

// Follow is the file that path leads to if it is a symbolic link, which need not be there, else path. Whoever keeps files beside another one
// asks for it first: beside a link they are beside nothing when the file is opened by its own name, and a rename would take the link's place. What
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
			// Not by name only: the way to the link may be a link, and to begin with "..".
			dir, err := filepath.EvalSymlinks(filepath.Dir(at))
			if err != nil {
				return path
			}
			to = dir + string(filepath.Separator) + to
		}
		at = to
	}
	return path
}

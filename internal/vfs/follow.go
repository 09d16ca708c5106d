package vfs

import (
	"os"
	"path/filepath"
)

// Follow is the file that path leads to if it is a symbolic link, which need not be there, else
// path. Callers that keep files beside another one call it first: files beside a link are not found
// when the file is opened by its own name, and a rename would replace the link. If the link cannot
// be read the result is path, for its open to report the error.
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

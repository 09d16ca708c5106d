package vfs

import "io/fs"

// DefaultMode is what Open creates a file with if the flag says nothing else: only its owner reads
// and writes it.
const DefaultMode fs.FileMode = 0o600

// permShift is where the permission bits stand in a Flag.
const permShift = 8

// permBits are the bits of a Flag that Perm sets.
const permBits = Flag(fs.ModePerm) << permShift

// Perm is the part of a Flag that gives a file that Create makes these permission bits, less those
// of the umask. Without it, or with none, they are DefaultMode. A file that is there keeps what it
// has. Windows has no such bits.
func Perm(mode fs.FileMode) Flag { return Flag(mode.Perm()) << permShift }

// Mode is what a file that this flag creates gets, before the umask.
func (f Flag) Mode() fs.FileMode {
	if mode := fs.FileMode(f&permBits) >> permShift; mode != 0 {
		return mode
	}
	return DefaultMode
}

// WithMode is fsys whose files are created with mode: all of them, whichever package creates them.
func WithMode(fsys FS, mode fs.FileMode) FS { return modeFS{fsys, Perm(mode)} }

type modeFS struct {
	FS
	perm Flag
}

func (m modeFS) Open(name string, flag Flag) (File, error) {
	if flag&Create != 0 {
		flag |= m.perm
	}
	return m.FS.Open(name, flag)
}

package crashfs_test

import (
	"testing"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/internal/vfs/vfstest"
)

func TestDiskIsAFileSystem(t *testing.T) {
	for name, opts := range map[string]crashfs.Options{
		"plain": {}, "direct": {Direct: true}, "direct_4k": {Direct: true, BlockSize: 4096},
		"untraced": {Untraced: true, Direct: true},
	} {
		t.Run(name, func(t *testing.T) {
			vfstest.Run(t, func(*testing.T) (vfs.FS, string) { return crashfs.New(opts), "dir" })
		})
	}
}

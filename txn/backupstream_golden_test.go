package txn

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/pager"
)

// TestBackupBytesArePinned: header, one frame of two pages, and the end. The meta page and the pages
// themselves, pinned elsewhere, are left out.
func TestBackupBytesArePinned(t *testing.T) {
	m := &pager.Meta{PageSize: 4096, SegmentSize: 64 << 10}
	var w bytes.Buffer
	e := &backupWriter{w: &w}
	require.NoError(t, e.begin(&Backup{
		ID: pager.BackupID{Epoch: 7, ID: 0x0102030405060708}, Base: pager.BackupID{Epoch: 5, ID: 9},
		PageSize: 4096, Pages: 2, MadeAt: time.UnixMilli(1_700_000_000_000), meta: m,
	}))
	header := bytes.Clone(w.Bytes()[:backupHeader])
	w.Reset()
	frame := make([]byte, frameHeader+2*4096)
	frame[frameHeader], frame[len(frame)-1] = 1, 2
	require.NoError(t, e.frame(17, 2, frame))
	head := bytes.Clone(w.Bytes()[:frameHeader])
	w.Reset()
	require.NoError(t, e.end())
	golden.Require(t, "backup.hex", "backup stream: header, head of a frame, end", golden.Row(
		golden.Part{Size: 8, Remark: "magic EBBBAK"},
		golden.Part{Size: 4, Remark: "version 1"},
		golden.Part{Size: 4, Remark: "page size 4096"},
		golden.Part{Size: 4, Remark: "base epoch 5"},
		golden.Part{Size: 4, Remark: "own epoch 7"},
		golden.Part{Size: 8, Remark: "base id"},
		golden.Part{Size: 8, Remark: "own id"},
		golden.Part{Size: 8, Remark: "pages"},
		golden.Part{Size: 8, Remark: "made at"},
		golden.Part{Size: 8, Remark: "checksum"},
		golden.Part{Size: 8, Remark: "frame: first page 17"},
		golden.Part{Size: 4, Remark: "two pages"},
		golden.Part{Size: 4, Remark: "zeros"},
		golden.Part{Size: 8, Remark: "checksum"},
		golden.Part{Size: 8, Remark: "end: two pages in all"},
		golden.Part{Size: 4, Remark: "no page follows"},
		golden.Part{Size: 4, Remark: "zeros"},
		golden.Part{Size: 8, Remark: "checksum"},
	), append(append(header, head...), w.Bytes()...))
}

package ui

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/wal"
)

// mostCommits bounds the list of commits: the first ones behind the checkpoint.
const mostCommits = 500

// segment is a segment file of the log.
type segment struct {
	Number  uint64 `json:"number"`
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	Salt    string `json:"salt"`
	Follows uint32 `json:"follows"`
}

// commit is a commit in the log.
type commit struct {
	LSN   uint64 `json:"lsn"`
	Bytes int    `json:"bytes"`
}

var errEnough = errors.New("enough commits")

// apiLog lists the segments of the log and the commits behind the newest checkpoint. It reads the log
// as it is now: another process may be writing it, and its end is then a torn one.
func (s *Server) apiLog(r *http.Request) (answer any, err error) {
	err = s.read(r, func(t *state) (bool, error) {
		if t.meta == nil {
			return false, errors.New("no meta page is valid: where the log begins is unknown")
		}
		found, err := wal.Scan(wal.Options{
			FS: s.o.FS, Path: vfs.Follow(s.o.Path), StoreID: t.meta.StoreID, SegmentSize: t.meta.SegmentSize,
		})
		if err != nil {
			return false, err
		}
		segments := []segment{}
		for _, g := range found.Segments() {
			if len(segments) == mostListed {
				break
			}
			info, _ := s.o.FS.Stat(g.File) // it may be gone
			salt := fmt.Sprintf("%016x", g.Salt)
			segments = append(segments, segment{g.Number, g.File, info.Size, salt, g.Follows})
		}
		a := map[string]any{
			"segments": segments, "foreign": found.Foreign(), "start": t.meta.LogStart,
			"segment_size": t.meta.SegmentSize, "clean": t.meta.Clean, "checkpoint": t.meta.Epoch,
		}
		if len(segments) > 0 || !t.meta.Clean {
			commits(r, found, wal.LSN(t.meta.LogStart), wal.LSN(t.meta.LogDurable), a)
		}
		answer = a
		return a["error"] != nil, nil
	})
	return answer, err
}

// commits adds the commits behind the checkpoint to an answer.
func commits(r *http.Request, found *wal.ScanResult, start, durable wal.LSN, a map[string]any) {
	list, n := []commit{}, 0
	err := found.Chain(start)
	if err == nil {
		var tail wal.Tail
		tail, err = found.Replay(start, durable, func(p wal.Part) error {
			if p.First {
				n = 0
			}
			n += len(p.Payload)
			if p.Last && len(list) == mostCommits {
				return errEnough
			}
			if p.Last {
				list = append(list, commit{uint64(p.Commit), n})
			}
			return r.Context().Err()
		})
		a["end"], a["torn_bytes"] = uint64(tail.End), tail.Dropped
	}
	switch {
	case errors.Is(err, errEnough):
		a["more"] = true
	case err != nil:
		a["error"] = err.Error()
	}
	a["commits"] = list
}

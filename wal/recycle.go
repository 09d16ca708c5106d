package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/vfs"
)

// defaultKeepFree is what Options.KeepFree returns by default.
const defaultKeepFree = 4

// segmentPool makes the log's segment files, recycles and retires them.
type segmentPool struct {
	opts     *Options
	state    *state
	appender *appender

	follows      atomic.Uint32 // see Log.SetFollows
	bytes        atomic.Int64  // of the segment files on disk
	bound        atomic.Int64  // see Log.SetBound
	unfilledSize atomic.Int64  // a smaller segment file need not be filled: see fewGroups

	// mu serialises the work on segment files that hold no record that counts, and is held across
	// their writes and syncs. It is taken before syncer.mu and appender.mu, never after.
	mu        sync.Mutex
	free      []*segment     // retired, kept to be recycled
	preparing sync.WaitGroup // goroutines that prepare a segment
}

// segment is an open segment file. Its fields are set before the appender gets it, and change only
// with segmentPool.mu held while it is retired.
type segment struct {
	segmentHeader
	fileSize int64 // bytes of its file: see fileSize
	file     vfs.File
	// The second descriptor, for direct writes; nil if Open refused it or the system has none.
	directFile vfs.File
	name       string
}

// start is the position of the segment's first record.
func (s *segment) start() LSN { return LSN(s.number*uint64(s.size) + firstRecord) }

// limit is the position that no data record crosses. One page is reserved for the end record, which
// fits after any padding of the last data record.
func (s *segment) limit() LSN { return LSN(s.number*uint64(s.size)+uint64(s.fileSize)) - pageUnit }

// recycle gives a retired segment's file to a new segment. Order: the new header, with a new salt
// and no hint, is durable before the rename, so that under the new name there are never records of
// the previous use. The rename is durable before the caller admits a record. mu is held.
func (p *segmentPool) recycle(seg *segment, number uint64) error {
	if number > MaxSegment {
		return errSegmentNumbers
	}
	h := p.newHeader(number, seg.block)
	var b [firstRecord]byte
	putSegmentHeader(b[:], h)
	if err := vfs.WriteFull(seg.file, b[:], 0); err != nil {
		return fmt.Errorf("write header of recycled log segment %s: %w", seg.name, err)
	}
	if err := seg.file.Sync(); err != nil {
		return fmt.Errorf("sync header of recycled log segment %s: %w", seg.name, err)
	}
	name := p.opts.name(number)
	if err := p.opts.FS.Rename(seg.name, name); err != nil {
		return fmt.Errorf("rename recycled log segment: %w", err)
	}
	seg.segmentHeader, seg.name = h, name
	if err := p.opts.FS.SyncDir(p.opts.dir()); err != nil {
		return fmt.Errorf("sync directory of recycled log segment %s: %w", name, err)
	}
	return nil
}

// release retires the live segments with lower numbers, which are durable: see Log.Release.
func (p *segmentPool) release(number uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.state.err(); err != nil {
		return err
	}
	dead := p.appender.retire(number)
	if len(dead) == 0 {
		return nil
	}
	err := p.checkIdentity()
	if err != nil {
		p.free = append(p.free, dead...) // for Close
	} else {
		err = p.recycleOrRemove(dead)
	}
	if err != nil {
		p.state.fail(err)
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}

// recycleOrRemove does release's work on the files. mu is held.
func (p *segmentPool) recycleOrRemove(dead []*segment) error {
	lowest := dead[0]
	number, used, ready := p.appender.nextSegment()
	size, _ := p.fileSize(used)
	if !ready && lowest.fileSize >= size {
		if err := p.recycle(lowest, number); err != nil {
			p.free = append(p.free, dead...)    // for Close
			if errors.Is(err, vfs.ErrNoFiles) { // its header is durable: Prepare renames it again
				last := len(p.free) - len(dead)
				p.free[last], p.free[len(p.free)-1] = p.free[len(p.free)-1], p.free[last]
				return nil
			}
			return err
		}
		p.appender.setSpare(lowest)
		dead = dead[1:]
	} else if err := lowest.invalidate(); err != nil {
		p.free = append(p.free, dead...)
		return err
	}
	keep := p.opts.KeepFree()
	for i, s := range dead {
		if len(p.free) < keep && s.fileSize >= size { // smaller files are removed
			p.free = append(p.free, s)
			continue
		}
		if err := p.remove(s); err != nil {
			p.free = append(p.free, dead[i+1:]...)
			return err
		}
	}
	return nil
}

// trim removes the retired segments: see Log.Trim.
func (p *segmentPool) trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.state.err(); err != nil {
		return err
	}
	err := p.checkIdentity()
	for err == nil && len(p.free) > 0 {
		last := len(p.free) - 1
		if err = p.remove(p.free[last]); err == nil {
			p.free = p.free[:last]
		}
	}
	if err != nil {
		p.state.fail(err)
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}

// remove closes and removes a segment file. Nothing relies on the file being gone, so the directory
// is not synced.
func (p *segmentPool) remove(s *segment) error {
	if err := errors.Join(s.close(), p.opts.FS.Remove(s.name)); err != nil {
		return fmt.Errorf("remove log segment %s: %w", s.name, err)
	}
	p.bytes.Add(-s.fileSize)
	return nil
}

// invalidate makes a retired segment's header durably invalid for every log.
func (s *segment) invalidate() error {
	var b [hintAt]byte
	if err := vfs.WriteFull(s.file, b[:], 0); err != nil {
		return fmt.Errorf("write header of retired log segment %s: %w", s.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("sync header of retired log segment %s: %w", s.name, err)
	}
	return nil
}

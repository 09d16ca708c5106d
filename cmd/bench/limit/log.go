package limit

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Log appends records of one size to a file. Its space is written once through with zeros before,
// and used in turn.
type Log struct {
	f      *os.File
	method method
	record []byte
	at     int64
	size   int64 // of the file
}

// method writes b at off so that it is on the disk when it returns.
type method struct {
	name string
	open func(name string) (*os.File, error)
	unit int // bytes that offset and length must be a multiple of
	sync func(*os.File) error
}

// padding is a multiple of what every method pads records to.
const padding = 4096

const (
	maxLogBytes = 64 << 20
	trialTime   = 50 * time.Millisecond
)

// OpenLog makes a log in dir for records of the given size, as many as there are going to be, or as
// fit into 64 MiB. If sync is set, each method that the system has is tried for a moment, and the
// fastest is taken.
func OpenLog(dir string, record, records int, sync bool) (*Log, error) {
	name := filepath.Join(dir, "limit.log")
	slot := int64(record+padding-1) / padding * padding
	size := max(min(slot*int64(records), maxLogBytes/slot*slot), slot)
	if err := zeros(name, size); err != nil {
		return nil, err
	}
	if !sync {
		return openLog(name, record, method{open: openBuffered, unit: 1,
			sync: func(*os.File) error { return nil }})
	}
	best, fastest := methods[0], time.Duration(0)
	for _, m := range methods {
		each, err := trial(name, record, m)
		if err != nil {
			continue // Not every file system has every method; the first one always works.
		}
		if fastest == 0 || each < fastest {
			best, fastest = m, each
		}
	}
	return openLog(name, record, best)
}

func openBuffered(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}

func trial(name string, record int, m method) (each time.Duration, err error) {
	l, err := openLog(name, record, m)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	began, n := time.Now(), 0
	for ; time.Since(began) < trialTime; n++ {
		if err := l.Append(); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(n), nil
}

func openLog(name string, record int, m method) (*Log, error) {
	f, err := m.open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	record = (record + m.unit - 1) / m.unit * m.unit
	return &Log{f: f, method: m, record: aligned(record), size: info.Size()}, nil
}

// zeros makes the file with all its blocks, and syncs it.
func zeros(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, 1<<20); size > 0; size -= int64(len(b)) {
		if _, err := f.Write(b[:min(size, int64(len(b)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

// Append writes one record, and syncs it if the log was opened so.
func (l *Log) Append() error {
	if l.at+int64(len(l.record)) > l.size {
		l.at = 0
	}
	if _, err := l.f.WriteAt(l.record, l.at); err != nil {
		return err
	}
	l.at += int64(len(l.record))
	return l.method.sync(l.f)
}

// Close leaves the file behind.
func (l *Log) Close() error { return l.f.Close() }

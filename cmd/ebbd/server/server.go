package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/cmd/ebbd/resp"
	"github.com/ebbkv/ebb/kv"
)

// StoreFile is the name of the store in the data directory.
const StoreFile = "ebbd.ebb"

// Options of a server. Zero fields mean defaults.
type Options struct {
	Dir         string           // of the store
	BackupDir   string           // of the backups that SAVE and BGSAVE make; "": they make none
	AppendFsync string           // always (default), everysec or no
	Password    string           // of the default user; "": none is needed
	MaxClients  int              // 0: 10000
	Databases   int              // 0: 16
	MaxReplies  int              // bytes of replies that wait for a client; 0: 256 MiB
	MaxBulk     int              // bytes of one argument; 0: 512 MiB
	ScriptBytes int              // of memory that the values of a script may take; 0: 512 MiB
	ScriptTime  time.Duration    // of one script, while no other write runs; 0: 5 seconds
	CacheBytes  int64            // see kv.Options
	MaxBytes    int64            // see kv.Options
	PageSize    int              // of a new store; 0: 16 KiB, for keys of 4 KiB
	Timeout     time.Duration    // an idle client is disconnected after it; 0: never
	TLS         *tls.Config      // nil: plain TCP
	Logger      *slog.Logger     // nil: silent
	Clock       func() time.Time // nil: the system's clock
	Version     string
	Parameters  map[string]string // of CONFIG SET, by name

	openStore func(path string, o *kv.Options) (*kv.DB, error) // nil: kv.Open
}

// Server answers clients from one store.
type Server struct {
	o     Options
	log   *slog.Logger
	db    *kv.DB
	store *keyspace.Store
	exec  *executor

	runID   string
	started time.Time
	stop    chan struct{} // closed when a client has sent SHUTDOWN
	stopOne sync.Once

	watches watchTable
	scans   scanTable
	waits   waitTable
	hub     hub
	scripts scriptTable
	slow    slowLog
	pause   pause
	stats   statistics
	config  settings

	acceptClock atomic.Bool // the next deletion of expired rows takes the time of the clock as right

	changes   atomic.Int64 // modified keys since start, or the last save
	dirty     atomic.Bool  // commits that are not synced
	lastSave  atomic.Int64 // s
	lastError atomic.Pointer[string]
	refused   time.Time // when noteCommit last logged that a turn has no space

	backups    sync.Mutex // held by a backup
	saving     atomic.Bool
	saveFailed atomic.Bool

	mu        sync.Mutex // guards what follows
	conns     map[int64]*conn
	nextConn  int64
	listeners []net.Listener
	closing   bool
	port      int

	ending      context.Context // ends with Shutdown, and backups with it
	end         context.CancelFunc
	connections sync.WaitGroup
	background  sync.WaitGroup
	endTicks    chan struct{}
}

// Open opens the store, or creates it, and starts the executor.
func Open(o Options) (*Server, error) {
	setDefault(&o.AppendFsync, "always")
	setDefault(&o.MaxClients, 10000)
	setDefault(&o.Databases, 16)
	setDefault(&o.MaxReplies, 256<<20)
	setDefault(&o.ScriptBytes, 512<<20)
	setDefault(&o.ScriptTime, 5*time.Second)
	setDefault(&o.MaxBulk, resp.DefaultLimits.Bulk)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		o:        o,
		log:      o.Logger,
		store:    keyspace.NewStore(o.Databases),
		runID:    randomID(),
		started:  time.Now(),
		stop:     make(chan struct{}),
		conns:    make(map[int64]*conn),
		endTicks: make(chan struct{}),
	}
	s.stats.perCommand = make([]commandStats, len(commands))
	s.ending, s.end = context.WithCancel(context.Background())
	if err := s.config.init(o); err != nil {
		return nil, OptionError{err}
	}
	s.lastSave.Store(s.started.Unix())
	for name, value := range o.Parameters {
		if err := s.setParameter(name, value); err != nil {
			return nil, OptionError{fmt.Errorf("%s: %w", name, err)}
		}
	}
	if err := s.openStore(); err != nil {
		return nil, err
	}
	s.exec = newExecutor(s)
	ticks := time.NewTicker(100 * time.Millisecond)
	go func() {
		defer ticks.Stop()
		s.exec.run(ticks.C)
	}()
	s.background.Go(s.syncEverySecond)
	s.background.Go(s.sweepOnce)
	return s, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (s *Server) openStore() error {
	path := filepath.Join(s.o.Dir, StoreFile)
	options := &kv.Options{
		CacheBytes: s.o.CacheBytes,
		MaxBytes:   s.o.MaxBytes,
		Clock:      s.o.Clock,
		OnExpireTx: s.store.OnExpireTx,
		Logger:     s.log,
		PageSize:   s.o.PageSize,
	}
	if options.PageSize == 0 {
		options.PageSize = 16 << 10
	}
	open := s.o.openStore
	if open == nil {
		open = kv.Open
	}
	db, err := open(path, options)
	if errors.Is(err, kv.ErrInvalidOptions) && s.o.PageSize == 0 {
		options.PageSize = 0 // an existing store has its own
		db, err = open(path, options)
	}
	if err != nil {
		return err
	}
	if err := s.store.Setup(db); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	s.db = db
	return nil
}

func randomID() string {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Serve accepts connections until the listener is closed, by Shutdown or the caller.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.listeners = append(s.listeners, l)
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		s.port = addr.Port
	}
	s.mu.Unlock()
	if s.o.TLS != nil {
		l = tls.NewListener(l, s.o.TLS)
	}
	for {
		nc, err := l.Accept()
		if err == nil {
			s.accept(nc)
			continue
		}
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing || errors.Is(err, net.ErrClosed) {
			return nil
		}
		// Descriptors that are used up are a matter of time.
		var temporary interface{ Timeout() bool }
		s.log.Error("accept", "error", err)
		if !errors.As(err, &temporary) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.stats.connections.Add(1)
	refusal := ""
	if len(s.conns) >= int(s.config.maxClients.Load()) {
		refusal = "-ERR max number of clients reached\r\n"
	} else if s.config.protected.Load() && s.config.password() == "" && !fromThisMachine(nc) {
		refusal = "-DENIED protected-mode is yes and there is no password: only clients of this machine " +
			"are served\r\n"
	}
	if refusal != "" {
		s.mu.Unlock()
		s.stats.rejected.Add(1)
		go func() {
			_ = nc.SetDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte(refusal))
			_ = nc.Close()
		}()
		return
	}
	s.nextConn++
	c := newConn(s, nc, s.nextConn)
	s.conns[c.id] = c
	s.connections.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.connections.Done()
		c.serve()
		s.mu.Lock()
		delete(s.conns, c.id)
		s.mu.Unlock()
	}()
}

func fromThisMachine(nc net.Conn) bool {
	addr, ok := nc.RemoteAddr().(*net.TCPAddr)
	return !ok || addr.IP.IsLoopback()
}

// Stopped is closed when a client has asked for a shutdown.
func (s *Server) Stopped() <-chan struct{} { return s.stop }

// Shutdown stops to accept connections, lets running commands end and their replies go out, and
// closes the store. When ctx ends, connections are cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.end()
	s.pause.end()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for _, c := range s.conns {
		c.interrupt()
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.connections.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.nc.Close()
		}
		s.mu.Unlock()
		<-ended
	}
	close(s.endTicks)
	s.background.Wait()
	close(s.exec.queue)
	<-s.exec.stopped
	return s.db.Close()
}

// syncEverySecond makes commits durable under appendfsync everysec.
func (s *Server) syncEverySecond() {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-s.endTicks:
			return
		case <-ticks.C:
		}
		if s.config.fsync.Load() == fsyncEverySecond && s.dirty.Swap(false) {
			if err := s.db.Sync(); err != nil {
				s.log.Error("sync", "error", err)
			}
		}
	}
}

// durability of the next turn.
func (s *Server) durability() kv.Durability {
	if s.config.fsync.Load() == fsyncAlways {
		return kv.Sync
	}
	s.dirty.Store(true)
	return kv.NoSync
}

// noteCommit logs failures of turns in the executor: the first one of a kind, and one a minute where
// space is short. Turns that need no space succeed in between, and a line for each change would take
// the space that is left.
func (s *Server) noteCommit(err error) {
	s.stats.turns.Add(1)
	before := s.lastError.Load()
	if err == nil {
		if before != nil {
			s.lastError.Store(nil)
		}
		return
	}
	if errors.Is(err, kv.ErrNoSpace) {
		s.stats.withoutSpace.Add(1)
	}
	text := err.Error()
	s.lastError.Store(&text)
	switch now := time.Now(); {
	case !errors.Is(err, kv.ErrNoSpace):
		if before == nil || *before != text {
			s.log.Error("turn failed", "error", err)
		}
	case now.Sub(s.refused) >= time.Minute:
		s.refused = now
		s.log.Warn("writes that need space are refused", "error", err)
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) monotonic() time.Duration { return time.Since(s.started) }

// space binds sp to database n in tx.
func (s *Server) space(sp *keyspace.Space, tx *kv.Tx, n int) { s.store.Attach(sp, tx, n) }

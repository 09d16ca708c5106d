package server

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// message is one that goes to subscribers.
type message struct {
	kind          int
	channel, text []byte
}

// send delivers a message: at once or, within a turn, after its commit.
func (x *execution) send(m message) {
	if !x.turn {
		x.s.hub.publish(m.kind, m.channel, m.text)
		return
	}
	if x.s.hub.count.Load() > 0 {
		m.channel, m.text = bytes.Clone(m.channel), bytes.Clone(m.text)
		x.s.exec.messages = append(x.s.exec.messages, m)
	}
}

// Flags of notify-keyspace-events. Classes have the letters of Redis; A is all of them.
const (
	notifyKeyspace = 'K'
	notifyKeyevent = 'E'
	notifyGeneric  = 'g'
	notifyExpired  = 'x'
	notifyClasses  = "g$lshzxetd"
)

// parseNotify returns the flags as a set of letters, one bit for each, and in the form that CONFIG
// GET shows.
func parseNotify(text string) (set uint64, shown string, err error) {
	for _, c := range text {
		switch {
		case c == 'A':
			for _, class := range notifyClasses {
				set |= notifyBit(class)
			}
		case c == notifyKeyspace || c == notifyKeyevent || strings.ContainsRune(notifyClasses, c):
			set |= notifyBit(c)
		default:
			//lint:ignore ST1005 the text is that of Redis
			return 0, "", fmt.Errorf("Invalid event class character %q: use %sKEA", c, notifyClasses)
		}
	}
	all := true
	for _, class := range notifyClasses {
		if set&notifyBit(class) == 0 {
			all = false
		} else {
			shown += string(class)
		}
	}
	if all {
		shown = "A"
	}
	for _, c := range "KE" {
		if set&notifyBit(c) != 0 {
			shown += string(c)
		}
	}
	return set, shown, nil
}

func notifyBit(c rune) uint64 {
	if c == '$' {
		return 1
	}
	return 1 << (1 + c - 'A')
}

// keyEvent is an event of one key.
type keyEvent struct {
	class rune
	name  string
	db    int
	key   []byte
}

// event notes an event of a key. It is sent if the command succeeds.
func (r *request) event(class rune, name string, key []byte) {
	r.eventOf(r.c.db, class, name, key)
}

func (r *request) eventOf(db int, class rune, name string, key []byte) {
	if r.s.config.notify.Load()&notifyBit(class) != 0 {
		r.events = append(r.events, keyEvent{class, name, db, key})
	}
}

// touch records that the command has modified a key: the event is the one of the command.
func (r *request) touch(key []byte) {
	e, ok := commandEvents[r.cmd.name]
	if !ok {
		e = commandEvent{'g', r.cmd.name}
	}
	r.touchAs(key, e.class, e.name)
}

func (r *request) touchAs(key []byte, class rune, event string) {
	r.changed = append(r.changed, key)
	r.event(class, event, key)
}

// notify sends the events of a command that has succeeded. Keys that have expired before it, and
// were deleted by it, come first.
func (r *request) notify() {
	if !r.turn {
		return // reads have no events
	}
	r.expired()
	for _, e := range r.events {
		r.sendEvent(e)
	}
	if r.s.config.notify.Load()&notifyBit(notifyGeneric) != 0 {
		for _, gone := range r.sp.TakeEmptied() {
			r.sendEvent(keyEvent{notifyGeneric, "del", r.c.db, gone})
		}
	}
}

// expired sends the events of keys that the transaction has found expired, and deleted.
func (x *execution) expired() {
	for _, e := range x.s.store.TakeExpired() {
		x.sendEvent(expiredEvent(e))
	}
}

func expiredEvent(e keyspace.ExpiredKey) keyEvent {
	return keyEvent{notifyExpired, "expired", e.DB, e.Key}
}

func (x *execution) sendEvent(e keyEvent) {
	for _, m := range x.s.eventMessages(e) {
		x.send(m)
	}
}

// eventMessages are the messages of an event that the present flags ask for.
func (s *Server) eventMessages(e keyEvent) (messages []message) {
	flags := s.config.notify.Load()
	if flags&notifyBit(e.class) == 0 {
		return nil
	}
	db := strconv.Itoa(e.db)
	if flags&notifyBit(notifyKeyspace) != 0 {
		channel := append([]byte("__keyspace@"+db+"__:"), e.key...)
		messages = append(messages, message{channelKind, channel, []byte(e.name)})
	}
	if flags&notifyBit(notifyKeyevent) != 0 {
		channel := []byte("__keyevent@" + db + "__:" + e.name)
		messages = append(messages, message{channelKind, channel, e.key})
	}
	return messages
}

type commandEvent struct {
	class rune
	name  string
}

// commandEvents are the events of the keys that commands touch, where they are not generic events
// with the name of the command.
var commandEvents = map[string]commandEvent{
	"unlink": {'g', "del"}, "getdel": {'g', "del"}, "copy": {'g', "copy_to"},
	"pexpire": {'g', "expire"}, "expireat": {'g', "expire"}, "pexpireat": {'g', "expire"},
	"set": {'$', "set"}, "setnx": {'$', "set"}, "getset": {'$', "set"}, "mset": {'$', "set"},
	"msetnx": {'$', "set"}, "append": {'$', "append"}, "setrange": {'$', "setrange"},
	"setex": {'$', "set"}, "psetex": {'$', "set"}, "setbit": {'$', "setbit"}, "bitop": {'$', "set"},
	"bitfield": {'$', "setbit"}, "incr": {'$', "incrby"}, "decr": {'$', "decrby"},
	"incrby": {'$', "incrby"}, "decrby": {'$', "decrby"}, "incrbyfloat": {'$', "incrbyfloat"},
	"hset": {'h', "hset"}, "hmset": {'h', "hset"}, "hsetnx": {'h', "hset"}, "hdel": {'h', "hdel"},
	"hincrby": {'h', "hincrby"}, "hincrbyfloat": {'h', "hincrbyfloat"}, "hexpire": {'h', "hexpire"},
	"hpexpire": {'h', "hexpire"}, "hexpireat": {'h', "hexpire"}, "hpexpireat": {'h', "hexpire"},
	"hpersist": {'h', "hpersist"}, "hgetdel": {'h', "hdel"}, "hsetex": {'h', "hset"},
	"hgetex": {'h', "hexpire"},
	"lpush":  {'l', "lpush"}, "rpush": {'l', "rpush"}, "lpushx": {'l', "lpush"}, "rpushx": {'l', "rpush"},
	"lpop": {'l', "lpop"}, "rpop": {'l', "rpop"}, "lset": {'l', "lset"}, "lrem": {'l', "lrem"},
	"ltrim": {'l', "ltrim"}, "linsert": {'l', "linsert"}, "sort": {'l', "sortstore"},
	"sadd": {'s', "sadd"}, "srem": {'s', "srem"}, "spop": {'s', "spop"},
	"sunionstore": {'s', "sunionstore"}, "sinterstore": {'s', "sinterstore"},
	"sdiffstore": {'s', "sdiffstore"},
	"zadd":       {'z', "zadd"}, "zincrby": {'z', "zincr"}, "zrem": {'z', "zrem"},
	"zremrangebyrank": {'z', "zremrangebyrank"}, "zremrangebyscore": {'z', "zremrangebyscore"},
	"zremrangebylex": {'z', "zremrangebylex"}, "zpopmin": {'z', "zpopmin"}, "zpopmax": {'z', "zpopmax"},
	"zunionstore": {'z', "zunionstore"}, "zinterstore": {'z', "zinterstore"},
	"zdiffstore": {'z', "zdiffstore"}, "zrangestore": {'z', "zrangestore"},
}

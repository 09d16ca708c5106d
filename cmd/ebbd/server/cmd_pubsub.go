package server

import (
	"slices"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

// subscriptionKind of SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE and their opposites.
func subscriptionKind(name string) int {
	switch name[0] {
	case 'p':
		return patternKind
	case 's':
		if strings.HasPrefix(name, "ss") || strings.HasPrefix(name, "sun") {
			return shardKind
		}
	}
	return channelKind
}

func subscribeCommand(r *request) error {
	kind := subscriptionKind(r.cmd.name)
	for _, name := range r.args[1:] {
		n := r.c.subscribe(kind, string(name))
		r.subscriptionReply(name, n)
	}
	return nil
}

// subscriptionReply is the reply for one channel. Without a name it says that there was none.
func (r *request) subscriptionReply(name []byte, n int) {
	r.w.Push(3)
	r.w.BulkString(r.cmd.name)
	if name == nil {
		r.w.Null()
	} else {
		r.w.Bulk(name)
	}
	r.w.Int(int64(n))
}

// unsubscribeCommand ends the named subscriptions, or all of the kind.
func unsubscribeCommand(r *request) error {
	kind := subscriptionKind(r.cmd.name)
	names := r.args[1:]
	if len(names) == 0 {
		for _, name := range r.c.subscribed[kind] {
			names = append(names, []byte(name))
		}
	}
	for _, name := range names {
		n := r.c.unsubscribe(kind, string(name))
		r.subscriptionReply(name, n)
	}
	if len(names) == 0 {
		r.subscriptionReply(nil, r.c.subscriptions(kind))
	}
	return nil
}

// publishCommand is PUBLISH and SPUBLISH. Within a turn the message goes out after the commit.
func publishCommand(r *request) error {
	kind := channelKind
	if r.cmd.name == "spublish" {
		kind = shardKind
	}
	r.w.Int(int64(r.s.hub.receivers(kind, r.args[1])))
	r.send(message{kind, r.args[1], r.args[2]})
	return nil
}

func pubsubCommand(r *request) error {
	h := &r.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch sub := r.word(1); {
	case (sub == "CHANNELS" || sub == "SHARDCHANNELS") && len(r.args) <= 3:
		kind := channelKind
		if sub == "SHARDCHANNELS" {
			kind = shardKind
		}
		var names []string
		for name := range h.by[kind] {
			if len(r.args) == 2 || match(r.args[2], []byte(name)) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		r.w.Array(len(names))
		for _, name := range names {
			r.w.BulkString(name)
		}
	case sub == "NUMSUB" || sub == "SHARDNUMSUB":
		kind := channelKind
		if sub == "SHARDNUMSUB" {
			kind = shardKind
		}
		r.w.Array(2 * (len(r.args) - 2))
		for _, name := range r.args[2:] {
			r.w.Bulk(name)
			r.w.Int(int64(len(h.by[kind][string(name)])))
		}
	case sub == "NUMPAT" && len(r.args) == 2:
		r.w.Int(int64(len(h.by[patternKind])))
	case sub == "HELP":
		return help(r, "CHANNELS [<pattern>]", "NUMPAT", "NUMSUB [<channel> ...]",
			"SHARDCHANNELS [<pattern>]", "SHARDNUMSUB [<channel> ...]")
	default:
		return errSubcommand(r)
	}
	return nil
}

// pingReply is the reply of PING in version 2 for a connection with subscriptions.
func pingReply(w *resp.Writer, text []byte) {
	w.Array(2)
	w.BulkString("pong")
	w.Bulk(text)
}

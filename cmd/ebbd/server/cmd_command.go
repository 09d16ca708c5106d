package server

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// docs describes every command: syntax, group, version of Redis, summary.
//
//go:embed commands.txt
var docsText string

// commandDoc is a line of commands.txt.
type commandDoc struct{ syntax, group, since, summary string }

// parseDocs returns the lines of commands.txt by the name of the command.
func parseDocs(text string) map[string]commandDoc {
	docs := make(map[string]commandDoc)
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != 4 {
			continue
		}
		name, _, _ := strings.Cut(fields[0], " ")
		docs[strings.ToLower(name)] = commandDoc{fields[0], fields[1], fields[2], fields[3]}
	}
	return docs
}

var commandDocs = parseDocs(docsText)

// commandNames returns the names of all commands, sorted.
func commandNames() []string {
	return slices.Sorted(maps.Keys(commands))
}

func commandCommand(r *request) error {
	if len(r.args) == 1 {
		return commandInfo(r, commandNames())
	}
	names := make([]string, 0, len(r.args)-2)
	for _, arg := range r.args[2:] {
		names = append(names, strings.ToLower(string(arg)))
	}
	switch sub := r.word(1); {
	case sub == "COUNT" && len(r.args) == 2:
		r.w.Int(int64(len(commands)))
	case sub == "LIST":
		return commandList(r)
	case sub == "INFO":
		if len(names) == 0 {
			names = commandNames()
		}
		return commandInfo(r, names)
	case sub == "DOCS":
		if len(names) == 0 {
			names = commandNames()
		}
		return commandDocsReply(r, names)
	case sub == "GETKEYS" && len(r.args) > 2:
		return commandGetKeys(r)
	case sub == "HELP":
		return help(
			r,
			"COUNT",
			"DOCS [<command> ...]",
			"GETKEYS <command> ...",
			"INFO [<command> ...]",
			"LIST",
		)
	default:
		return errSubcommand(r)
	}
	return nil
}

func commandList(r *request) error {
	names := commandNames()
	switch {
	case len(r.args) == 5 && r.is(2, "filterby") && r.is(3, "pattern"):
		names = slices.DeleteFunc(
			names,
			func(n string) bool { return !match(r.args[4], []byte(n)) },
		)
	case len(r.args) == 5 && r.is(2, "filterby"):
		names = nil
	case len(r.args) != 2:
		return errSyntax
	}
	r.w.Array(len(names))
	for _, name := range names {
		r.w.BulkString(name)
	}
	return nil
}

// flagNames are the flags that COMMAND INFO shows.
var flagNames = []struct {
	flag flag
	name string
}{
	{flagWrite, "write"}, {flagRead, "readonly"}, {flagFast, "fast"}, {flagAdmin, "admin"},
	{flagNoAuth, "no_auth"}, {flagNever, "no_multi"}, {flagBlocking, "blocking"},
}

func commandInfo(r *request, names []string) error {
	r.w.Array(len(names))
	for _, name := range names {
		cmd := commands[name]
		if cmd == nil {
			r.w.NullArray()
			continue
		}
		r.w.Array(10)
		r.w.BulkString(cmd.name)
		r.w.Int(int64(cmd.arity))
		var flags []string
		for _, f := range flagNames {
			if cmd.flags&f.flag != 0 {
				flags = append(flags, f.name)
			}
		}
		if cmd.keys.numkeys > 0 {
			flags = append(flags, "movablekeys")
		}
		r.w.Set(len(flags))
		for _, f := range flags {
			r.w.Simple(f)
		}
		for _, n := range []int{cmd.keys.first, cmd.keys.last, cmd.keys.step} {
			r.w.Int(int64(n))
		}
		r.w.Set(1)
		r.w.Simple("@" + commandDocs[name].group)
		r.w.Array(0) // tips
		r.w.Array(0) // key specifications
		r.w.Array(0) // subcommands
	}
	return nil
}

func commandDocsReply(r *request, names []string) error {
	names = slices.DeleteFunc(names, func(n string) bool { return commands[n] == nil })
	r.w.Map(len(names))
	for _, name := range names {
		doc := commandDocs[name]
		r.w.BulkString(name)
		fields := [][2]string{
			{
				"summary",
				doc.summary,
			}, {"since", doc.since}, {"group", doc.group}, {"syntax", doc.syntax},
		}
		r.w.Map(len(fields))
		for _, f := range fields {
			r.w.BulkString(f[0])
			r.w.BulkString(f[1])
		}
	}
	return nil
}

func commandGetKeys(r *request) error {
	args := r.args[2:]
	cmd := lookup(args[0])
	if cmd == nil {
		return replyError("ERR Invalid command specified")
	}
	if cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity {
		return replyError("ERR Invalid number of arguments specified for command")
	}
	at := cmd.keys.positions(args)
	if len(at) == 0 {
		return replyError("ERR The command has no key arguments")
	}
	r.w.Array(len(at))
	for _, i := range at {
		r.w.Bulk(args[i])
	}
	return nil
}

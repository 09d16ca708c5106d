package main

import "github.com/spf13/cobra"

// groups are the headings of the list of commands, and the commands below each.
var groups = []struct {
	title    string
	commands []string
}{
	{"Rows:", []string{"get", "put", "del", "scan", "count", "incr", "cas", "watch", "append", "scan-time"}},
	{"Families and expiry:", []string{"family", "ttl", "expire", "persist", "purge"}},
	{"Look at a store:", []string{"shell", "ui", "stats"}},
	{"Copy and move:", []string{"backup", "restore", "dump", "load", "import", "export", "compact"}},
	{"Damage:", []string{"check", "salvage", "pages", "wal"}},
	{"Try it:", []string{"demo", "bench-quick"}},
}

// group gives each command its heading.
func group(root *cobra.Command) {
	of := map[string]string{}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			of[name] = g.title
		}
	}
	for _, cmd := range root.Commands() {
		cmd.GroupID = of[cmd.Name()] // "" for version and cobra's own
	}
}

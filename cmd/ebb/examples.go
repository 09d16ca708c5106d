package main

import "github.com/spf13/cobra"

// examples are calls of the commands whose own declaration has none.
var examples = map[string]string{
	"get": `  ebb get my.ebb greeting
  ebb get my.ebb cat.jpg --family photos > cat.jpg`,
	"del": `  ebb del my.ebb session:17 session:18`,
	"scan": `  ebb scan my.ebb --prefix session: --limit 20
  ebb scan my.ebb --from a --to n --expiry
  ebb scan my.ebb --expiring-before 2030-01-31T12:00:00Z`,
	"ttl": `  ebb ttl my.ebb session:17
  ebb ttl my.ebb session:17 --json`,
	"persist": `  ebb persist my.ebb session:17`,
	"purge": `  ebb purge my.ebb
  ebb purge my.ebb --family sessions --limit 10000`,
	"import": `  ebb import my.ebb photos/ --family photos --resume
  ebb import my.ebb --from bolt old.db`,
	"export": `  ebb export my.ebb photos/ --family photos --expiries photos.expiries`,
	"check": `  ebb check my.ebb
  ebb check my.ebb --json`,
	"dump": `  ebb dump my.ebb --json > rows.jsonl
  ebb dump my.ebb --csv --family users > users.csv`,
	"pages": `  ebb pages my.ebb
  ebb pages my.ebb --bad`,
	"wal":  `  ebb wal my.ebb`,
	"demo": `  ebb demo demo.ebb /usr/share/doc`,

	"bench-quick": `  ebb bench-quick --dir /mnt/disk --each 5s`,
	"version":     `  ebb version`,
}

// addExamples gives every command an example.
func addExamples(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Example == "" {
			cmd.Example = examples[cmd.Name()]
		}
	}
}

package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func getCommand(a *app) *cobra.Command {
	var withTTL bool
	cmd := &cobra.Command{
		Use:   "get STORE KEY",
		Short: "Print the value of a key, byte for byte",
		Long: `Get prints the value of a key, byte for byte; on a terminal as lines of text, with escapes
for what is no text. With --json the answer names the expiry of
a key that has one, and a value that is no UTF-8, or of 1 MiB and more, is in base64 under the name
value_base64.

With --ttl what is left of the key's life goes to standard error, as the command ttl prints it.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[1])
			if err != nil {
				return err
			}
			return a.view(cmd.Context(), args[0], func(tx *kv.Tx) error {
				value, err := tx.CF(a.family).Get(key)
				if err != nil {
					return fmt.Errorf("get: %w", err)
				}
				l, err := lifeOf(tx.CF(a.family), key)
				if err != nil {
					return fmt.Errorf("get: %w", err)
				}
				if !a.json && a.held != nil { // A row of text: the value may be anything.
					return a.printRow(row{key: key, value: value, at: l.at})
				}
				if !a.json {
					if withTTL {
						fmt.Fprintln(a.stderr, l)
					}
					if a.out.terminal {
						return a.printText(value)
					}
					_, err := a.out.Write(value)
					return err
				}
				row := map[string]any{"family": a.family, "size": len(value)}
				a.setBytes(row, "key", key)
				if withTTL || l.ends() {
					l.set(row)
				}
				return a.printRowJSON(row, value)
			})
		},
	}
	cmd.Flags().BoolVar(&withTTL, "ttl", false, "print what is left of the key's life on standard error")
	return cmd
}

// printText prints a value on a terminal, which no byte of it controls. The last line ends, too.
func (a *app) printText(value []byte) error {
	for b := value; len(b) > 0; {
		n := wholeRunes(b, pieceSize)
		if _, err := a.out.WriteString(printable(string(b[:n]), "\n\t")); err != nil {
			return err
		}
		b = b[n:]
	}
	if bytes.HasSuffix(value, []byte("\n")) {
		return nil
	}
	return a.out.WriteByte('\n')
}

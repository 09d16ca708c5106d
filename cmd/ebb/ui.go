package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/cmd/ebb/internal/ui"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

func uiCommand(a *app) *cobra.Command {
	addr := ""
	cmd := &cobra.Command{
		Use:   "ui STORE",
		Short: "Look at a store in a browser, also at one that is in use or damaged",
		Long: `Ui serves a web page on a store until it is interrupted, and prints the address: families, rows
with a search by prefix, what expires when, a map of the pages, the trees, and the log. Nothing can be
changed through it.

It takes no lock, so it is in no other process's way, and shows one instant of the store until
Refresh is pressed. A damaged store is shown as far as it can be read, with bad pages in red.

The page loads nothing from elsewhere. It can be reached from this machine alone, with the token in
the address that is printed: keep that to yourself. On another machine, forward the port:
ssh -L 8080:127.0.0.1:8080 HOST ebb ui STORE --addr 127.0.0.1:8080`,
		Example: `  ebb ui my.ebb
  ebb ui my.ebb --addr 127.0.0.1:8080`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ui(cmd.Context(), args[0], addr)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0",
		"address of this machine to listen on; port 0: any that is free")
	return cmd
}

func (a *app) ui(ctx context.Context, store, addr string) error {
	raw, err := pager.OpenRaw(vfs.OS, vfs.Follow(store), true)
	if err == nil {
		err = raw.Close()
	}
	if err != nil {
		return fmt.Errorf("ui: %w", unopened(openfs.OpenError(store, err), true))
	}
	listener, err := ui.Listen(addr)
	if err != nil {
		return fmt.Errorf("ui: --addr: %w", err)
	}
	server := ui.New(ui.Options{Path: store, Clock: a.clock}, listener.Addr())
	if a.json {
		err = a.printJSON(map[string]any{"url": server.URL()})
	} else {
		_, err = fmt.Fprintf(a.out, "%s\nOpen this address in a browser. Ctrl-C ends.\n", server.URL())
	}
	if err == nil {
		err = a.out.Flush()
	}
	if err != nil {
		return err
	}
	return server.Serve(ctx, listener)
}

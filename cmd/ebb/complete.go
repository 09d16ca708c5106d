package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// Completion of families and keys in a shell. The scripts that `ebb completion SHELL` prints ask the
// command itself, which opens the store read-only and waits for no lock: where it cannot, or finds
// nothing, nothing is offered.

// completionExample is how the scripts are used.
const completionExample = `  source <(ebb completion bash)
  ebb completion zsh > "${fpath[1]}/_ebb"
  ebb completion fish > ~/.config/fish/completions/ebb.fish`

// mostOffered is the largest number of words that are offered: a shell shows no more in a useful way.
const mostOffered = 200

// addCompletion gives the commands the completion of their arguments, by the names of these in Use,
// and of --family.
func (a *app) addCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch words := strings.Fields(cmd.Use); {
		case len(words) < 3 || words[1] != "STORE":
		case strings.HasPrefix(words[2], "KEY"):
			cmd.ValidArgsFunction = a.behindStore(a.offerKeys, strings.HasSuffix(words[2], "..."))
		case words[2] == "[NAME]":
			cmd.ValidArgsFunction = a.behindStore(a.offerFamilies, false)
		}
	}
	_ = root.RegisterFlagCompletionFunc("family", // fails only for a flag that is not there
		func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.offer(cmd.Context(), args[0], begin, a.offerFamilies), cobra.ShellCompDirectiveNoFileComp
		})
}

// offers are words for a shell that begin as the argument does.
type offers func(tx *kv.Tx, begin string) []string

// behindStore completes the argument behind that of the store, or all that follow it. The store is a
// file, which the shell completes itself; so are values.
func (a *app) behindStore(words offers, all bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 || len(args) > 1 && !all {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.offer(cmd.Context(), args[0], begin, words), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) offer(ctx context.Context, store, begin string, words offers) (list []string) {
	if ctx == nil {
		ctx = context.Background()
	}
	err := a.view(ctx, store, func(tx *kv.Tx) error {
		list = words(tx, begin)
		return tx.Err()
	})
	if err != nil {
		return nil
	}
	return list
}

// offerKeys offers keys of the family that a shell can show and pass on as they are.
func (a *app) offerKeys(tx *kv.Tx, begin string) (list []string) {
	prefix := []byte(begin)
	if a.hex || a.base64 {
		prefix = nil // A part of the text need not be whole bytes.
	}
	for key := range tx.CF(a.family).Scan(kv.ScanOptions{Prefix: prefix, KeysOnly: true}) {
		word := a.show(key)
		if !strings.HasPrefix(word, begin) || !a.hex && !a.base64 && word != string(key) {
			continue
		}
		if list = append(list, word); len(list) == mostOffered {
			break
		}
	}
	return list
}

func (a *app) offerFamilies(tx *kv.Tx, begin string) (list []string) {
	names, _ := tx.ListCFs() // Without a list there is nothing to offer.
	for _, name := range names {
		if strings.HasPrefix(name, begin) {
			list = append(list, name)
		}
	}
	return list
}

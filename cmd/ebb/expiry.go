package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// instant is a flag whose value is a time after 1970. The zero instant was not given.
type instant struct{ time.Time }

// Set takes RFC 3339 or milliseconds since 1970.
func (i *instant) Set(s string) error {
	at, err := time.Parse(time.RFC3339, s)
	if ms, errMs := strconv.ParseInt(s, 10, 64); errMs == nil {
		at, err = time.UnixMilli(ms), nil
	}
	switch {
	case err != nil:
		return errors.New("neither RFC 3339, as 2030-01-31T12:00:00Z, nor milliseconds since 1970")
	case at.Before(time.UnixMilli(1)):
		return errors.New("not after 1970")
	}
	i.Time = at
	return nil
}

// String is empty for the default, so that the help of a flag names none.
func (i *instant) String() string {
	if i.IsZero() {
		return ""
	}
	return showInstant(i.Time)
}

// Type is how the help names the value.
func (i *instant) Type() string { return "time" }

// showInstant gives an instant in UTC, to the millisecond, in a form that a flag accepts: RFC
// 3339, which ends with the year 9999, or milliseconds since 1970.
func showInstant(at time.Time) string {
	if at = at.UTC(); at.Year() > 9999 {
		return strconv.FormatInt(at.UnixMilli(), 10)
	}
	return at.Format("2006-01-02T15:04:05.999Z07:00")
}

// life is how long a key that is there has to live.
type life struct {
	at   time.Time // expiry; zero: none
	left time.Duration
}

// lifeOf looks at a key. An expired one is kv.ErrNotFound, like an absent one.
func lifeOf(cf *kv.CF, key []byte) (life, error) {
	at, err := cf.Expiry(key)
	if err != nil || at.IsZero() {
		return life{}, err
	}
	left, err := cf.TTL(key)
	return life{at, left}, err
}

// ends is false for a permanent key.
func (l life) ends() bool { return !l.at.IsZero() }

// String is what is left, or none.
func (l life) String() string {
	if !l.ends() {
		return "none"
	}
	return showDuration(l.left)
}

// set puts the life into a JSON object: both fields are null for a permanent key.
func (l life) set(object map[string]any) {
	object["ttl_ms"], object["expiry"] = nil, nil
	if l.ends() {
		object["ttl_ms"], object["expiry"] = l.left.Milliseconds(), showInstant(l.at)
	}
}

// printLife prints the JSON object of the commands that print or change how long a key lives.
func (a *app) printLife(key []byte, l life) error {
	object := map[string]any{"family": a.family}
	a.setBytes(object, "key", key)
	l.set(object)
	return a.printJSON(object)
}

func ttlCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ttl STORE KEY",
		Short: "Print how long a key still lives, or none if it is permanent",
		Long: `Ttl prints what is left of the life of a key, as 1d12h, or none if the key is permanent. With
--json it prints milliseconds and the instant at which the key expires. The exit code is 2 if the key
is not there, or has expired.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[1])
			if err != nil {
				return err
			}
			return a.view(cmd.Context(), args[0], func(tx *kv.Tx) error {
				l, err := lifeOf(tx.CF(a.family), key)
				if err != nil {
					return fmt.Errorf("ttl: %w", err)
				}
				if a.json {
					return a.printLife(key, l)
				}
				_, err = fmt.Fprintln(a.out, l)
				return err
			})
		},
	}
}

func expireCommand(a *app) *cobra.Command {
	var at instant
	cmd := &cobra.Command{
		Use:   "expire STORE KEY DURATION",
		Short: "Give a key a new expiry; its value stays",
		Long: `Expire lets a key live for DURATION from now on, or with --at until that time, whatever
expiry it had. Its value is not written again. A key that is expired already stays so: exit code 2.`,
		Example: `  ebb expire my.ebb session:17 30m
  ebb expire my.ebb offer --at 2030-01-31T12:00:00Z`,
		Args: args(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ttl time.Duration
			if at.IsZero() == (len(args) < 3) {
				return usageError{cmd, errors.New("give either a DURATION or --at")}
			}
			if len(args) == 3 {
				var err error
				if ttl, err = parseDuration(args[2]); err != nil {
					return usageError{cmd, err}
				}
			}
			return a.changeLife(cmd, args, func(cf *kv.CF, key []byte) error {
				if !at.IsZero() {
					return cf.ExpireAt(key, at.Time)
				}
				return cf.Expire(key, ttl)
			})
		},
	}
	cmd.Flags().Var(&at, "at", "the key is gone at this time")
	return cmd
}

func persistCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "persist STORE KEY",
		Short: "Make a key permanent; its value stays",
		Long: `Persist takes the expiry of a key away, also one that came from the default ttl of its family.
Its value is not written again. A key without an expiry stays as it is. The exit code is 2 if the key is
not there, or has expired.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeLife(cmd, args, (*kv.CF).Persist)
		},
	}
}

// changeLife changes the expiry of the key that args name, in one durable transaction.
func (a *app) changeLife(cmd *cobra.Command, args []string, change func(*kv.CF, []byte) error) error {
	key, err := a.key(args[1])
	if err != nil {
		return err
	}
	var l life
	err = a.update(cmd, args[0], true, func(tx *kv.Tx) error {
		if err := change(tx.CF(a.family), key); err != nil {
			return err
		}
		l, err = lifeOf(tx.CF(a.family), key)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if a.json {
		return a.printLife(key, l)
	}
	return nil
}

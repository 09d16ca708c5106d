package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// errACLRule refuses what would be ignored otherwise.
func errACLRule(rule []byte) error {
	return replyError(fmt.Sprintf("ERR Error in ACL SETUSER modifier '%.64s': this server has the user "+
		"default only, with all keys, channels and commands, and one password", rule))
}

// aclCommand is ACL for the only user, default: it may do everything and has a password or none.
func aclCommand(r *request) error {
	switch sub := r.word(1); {
	case sub == "WHOAMI" && len(r.args) == 2:
		r.w.BulkString("default")
	case sub == "USERS" && len(r.args) == 2:
		r.w.Array(1)
		r.w.BulkString("default")
	case sub == "LIST" && len(r.args) == 2:
		r.w.Array(1)
		r.w.BulkString("user default on " + r.s.aclPassword() + " sanitize-payload ~* &* +@all")
	case sub == "GETUSER" && len(r.args) == 3:
		aclGetUser(r)
	case sub == "SETUSER" && len(r.args) >= 3:
		return aclSetUser(r)
	case sub == "DELUSER" && len(r.args) >= 3:
		return aclDelUser(r)
	case sub == "CAT":
		return replyError("ERR ACL CAT: commands have no categories here, the user default may run all")
	case sub == "LOG" && len(r.args) <= 3:
		if len(r.args) == 3 && r.is(2, "reset") {
			r.w.Simple("OK")
		} else {
			r.w.Array(0)
		}
	case sub == "GENPASS" && len(r.args) <= 3:
		return aclGenPass(r)
	case sub == "HELP":
		return help(r, "DELUSER <username> ...", "GENPASS [<bits>]", "GETUSER <username>", "LIST",
			"LOG [<count>|RESET]", "SETUSER default <rule> ...", "USERS", "WHOAMI")
	default:
		return errSubcommand(r)
	}
	return nil
}

// aclPassword is the password's rule: its hash, or that there is none.
func (s *Server) aclPassword() string {
	password := s.config.password()
	if password == "" {
		return "nopass"
	}
	sum := sha256.Sum256([]byte(password))
	return "#" + hex.EncodeToString(sum[:])
}

func aclGetUser(r *request) {
	if string(r.args[2]) != "default" {
		r.w.Null()
		return
	}
	flags, passwords := []string{"on"}, []string{}
	if rule := r.s.aclPassword(); rule == "nopass" {
		flags = append(flags, rule)
	} else {
		passwords = append(passwords, rule[1:])
	}
	list := func(words []string) {
		r.w.Array(len(words))
		for _, word := range words {
			r.w.BulkString(word)
		}
	}
	r.w.Map(6)
	r.w.BulkString("flags")
	list(flags)
	r.w.BulkString("passwords")
	list(passwords)
	for _, field := range [][2]string{{"commands", "+@all"}, {"keys", "~*"}, {"channels", "&*"}} {
		r.w.BulkString(field[0])
		r.w.BulkString(field[1])
	}
	r.w.BulkString("selectors")
	r.w.Array(0)
}

// aclSetUser changes the password of the user default. Rules that it has anyway are accepted.
func aclSetUser(r *request) error {
	if string(r.args[2]) != "default" {
		return errACLRule(r.args[2])
	}
	password := r.s.config.password()
	for _, rule := range r.args[3:] {
		switch text := strings.ToLower(string(rule)); {
		case text == "on" || text == "~*" || text == "allkeys" || text == "&*" || text == "allchannels" ||
			text == "+@all" || text == "allcommands":
		case text == "nopass":
			password = ""
		case len(rule) > 1 && rule[0] == '>':
			password = string(rule[1:])
		default:
			return errACLRule(rule)
		}
	}
	r.s.config.secret.Store(&password)
	r.w.Simple("OK")
	return nil
}

func aclDelUser(r *request) error {
	for _, name := range r.args[2:] {
		if string(name) == "default" {
			return replyError("ERR The 'default' user cannot be removed")
		}
	}
	r.w.Int(0)
	return nil
}

func aclGenPass(r *request) error {
	bits := int64(256)
	if len(r.args) == 3 {
		var err error
		if bits, err = r.int(2); err != nil || bits < 1 || bits > 4096 {
			return replyError("ERR ACL GENPASS argument must be the number of bits for the output " +
				"password, a positive number up to 4096")
		}
	}
	b := make([]byte, (bits+7)/8)
	_, _ = rand.Read(b) // never fails
	r.w.BulkString(hex.EncodeToString(b)[:(bits+3)/4])
	return nil
}

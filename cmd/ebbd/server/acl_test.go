package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACLKnowsTheDefaultUser(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	steps(t, c, nil, [][2]string{
		{"ACL WHOAMI", `"default"`}, {"ACL USERS", `["default"]`}, {"ACL GETUSER other", "nil"},
		{"ACL LIST", `["user default on nopass sanitize-payload ~* &* +@all"]`}, {"ACL DELUSER other", "0"},
		{"ACL SETUSER default on allkeys +@all", "OK"},
		{"ACL CAT", "(error) ERR ACL CAT: commands have no categories here, the user default may run all"},
		{"ACL LOG", "[]"},
		{"ACL DELUSER default", "(error) ERR The 'default' user cannot be removed"},
	}...)
	for _, refused := range []string{"other on", "default -@all", "default ~a*", "default off",
		"default #abc"} {
		require.Contains(t, c.line("ACL SETUSER "+refused), "this server has the user default only", refused)
	}
	require.Len(t, c.line("ACL GENPASS"), 64+2)
	require.Len(t, c.line("ACL GENPASS 5"), 2+2)
	require.Equal(t, "OK", c.line("ACL SETUSER default >secret"))
	require.Contains(t, c.line("ACL GETUSER default"),
		`["flags" ["on"] "passwords" ["2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"]`)
	other := s.client()
	require.Contains(t, other.line("ACL WHOAMI"), "NOAUTH")
	require.Equal(t, "OK", other.line("AUTH default secret"))
	require.Equal(t, `"default"`, other.line("ACL WHOAMI"))
	require.Equal(t, "OK", other.line("ACL SETUSER default nopass"))
	require.Equal(t, "PONG", s.client().line("PING"))
}

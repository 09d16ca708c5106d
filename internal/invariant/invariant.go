package invariant

import "fmt"

// Fail panics with a message that names room and place, such as "btree: page 17: slot 4 out of
// order". It is for broken promises between our own functions only.
func Fail(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

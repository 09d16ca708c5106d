//go:build !invariant

package invariant

// On says that whole-page checks run before a page is sealed.
const On = false

// Pause does nothing.
func Pause() {}

// Package ratecounter counts the requests of github.com/go-chi/httprate in a family of an Ebb store,
// so that limits outlive a restart. A counter expires by itself when no window reads it any more.
package ratecounter

// Command histories gives small histories of many clients to a linearizability checker (Porcupine),
// which knows nothing of commit numbers: it looks for an order of the transactions that agrees with
// time and with what each of them saw. The judge of crashtest history trusts the numbers and is
// fast; this one trusts nothing, takes long, and looks at a sample.
//
// It is a module of its own, so that the checker does not come with the library. It runs histories
// one after the other and knows no page, no record and no log.
package main

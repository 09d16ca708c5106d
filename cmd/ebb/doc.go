// Ebb works on an Ebb store from the command line: read, write, import, export, check, and look at
// the raw pages and log records. `ebb help` lists the commands.
//
// Exit codes: 0 all right, 1 an error or a damaged store, 2 the key or family is not there, 3 a key
// that must not be there is.
//
// A command is one process with one store open; commands that only read open it read-only and so
// run beside each other, but not beside a process that writes. Within a process nothing here runs
// at the same time as anything else, except that the demo command watches the importing process
// that it is going to kill, and that put hears an interrupt while it reads a value.
//
// The command knows no layout of pages or records but what the packages pager and wal export, and
// only the files pages.go and wal.go, and the package internal/ui, ask them.
package main

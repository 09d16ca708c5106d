// Package crashfs is the simulated disk of the tests: a vfs.FS in memory that records every change
// in one trace, and afterwards computes what a kill or a power cut may have left behind at any
// moment of it.
//
// # The model of the disk
//
// An inode has durable bytes and a durable size, and changes pending since its last sync. A
// directory has durable entries and pending changes of entries. Sync makes data and size of a file
// durable, but not its name; SyncData makes data durable, and growth too, except in profile Size;
// SyncDir makes names durable, but not what they name. Whatever is pending may persist at any
// moment, in any order and in part. The units that persist or do not are: each 4 KiB block of each
// pending write (a kept version of a block carries all earlier writes to it), each change of size,
// each change of an entry. Rename is atomic except in profile Dirs. A write to a Direct file is a
// write and then the durability of just its data, with a crash point in between, and, with
// Options.Landing, the operations of other goroutines.
//
// A crash point is the instant after each entry of the trace, and before the first: point p has
// seen entries [0, p). Disk.Images goes through the points and yields the images of the chosen
// profiles; each carries how many commits it must (Acked) and may (Begun) hold, as the workload
// told by Disk.Begun, Acked and AckedRelaxed, and a string from which Disk.Rebuild makes the same
// image again. Image.Disk starts a disk from it, whose own trace gives depth two.
//
// # Faults
//
// Disk.Inject arms a Fault: it picks operations by kind, calling site and index and makes them
// fail, fall short, lie, or change place. Fail, Short and Zero concern the caller; Gate is a failed
// sync after which the pending data stays readable and never persists (a clone of what Linux does),
// and the next sync succeeds. Ignore, Swallow, Early, Swap, Drop and EarlyUnlink commit the
// mistakes that an engine could make, so that a test can show that they would be seen. There is
// also a capacity, a read-only mode and a count of operations.
//
// A Disk is safe for concurrent use, one operation at a time. Images may run any number of times,
// also at once and beside the disk's use: it works on the trace as it was when it began. An Image
// never changes. The package knows no page and no log; what a state means is the oracle's business.
package crashfs

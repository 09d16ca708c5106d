package offheap

// HugePage is the size of a huge page, or something like it. Memory that is not smaller is in huge
// pages where the system has them, and at the border of one if it is a multiple. To find them takes
// a small part of the time that 4 KiB at a time take.
const HugePage = 2 << 20

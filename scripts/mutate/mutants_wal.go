package main

// logMutants are mistakes in the log.
var logMutants = []mutant{
	{"check", "a_later_segment_is_asked_for_its_note_alone", "wal/reader.go",
		`		if j >= len(f.segments)-f.emptyTail {`,
		`		if j >= len(f.segments)-f.emptyTail || true {`},
	{"check", "a_broken_chain_is_whole_when_it_is_asked_again", "wal/scan.go",
		`			f.links[i] = bad`, `			f.links[i] = nil`},
	{"order", "no_space_is_asked_for", "wal/preallocate.go",
		`errors.Is(err, vfs.ErrNoSpace) && p.opts.FreeSpace() {`,
		`errors.Is(err, vfs.ErrNoSpace) && false {`},
	{"order", "others_are_asked_for_room_that_the_disk_has", "wal/preallocate.go",
		`	if most == 0 && p.opts.FreeSpace`, `	if p.opts.FreeSpace`},
	{"sync", "a_group_is_not_synced", "wal/groupwrite.go", `	if err := r.seg.file.SyncData(); err != nil {
		return writeComplete, fmt.Errorf("sync log segment %s: %w", r.seg.name, err)
	}
	return writeComplete, nil`, `	return writeComplete, nil`},
	{"sync", "what_a_record_names_is_not_synced_before_it", "wal/externalrefs.go",
		`durable || g.buffer.ref == refSyncFirst`, `durable`},
	{"sync", "error_of_syncing_what_a_record_names_is_ignored", "wal/externalrefs.go",
		`	if err := s.opts.SyncRefs(); err != nil {`,
		`	if err := s.opts.SyncRefs(); err != nil && false {`},
	{"sync", "the_sync_of_a_wait_is_left_out", "wal/groupwrite.go",
		`		if err := s.segment.file.SyncData(); err != nil {
			return writeComplete, fmt.Errorf("sync log segment %s: %w", s.segment.name, err)
		}
		return writeComplete, nil`, `		return writeComplete, nil`},
	{"sync", "error_of_a_group_sync_is_ignored", "wal/groupwrite.go",
		`		return writeComplete, fmt.Errorf("sync log segment %s: %w", r.seg.name, err)`,
		`		return writeComplete, nil`},
	{"sync", "error_of_a_cached_write_is_ignored", "wal/groupwrite.go",
		`	if err := vfs.WriteFull(r.seg.file, r.buf, r.offset()); err != nil {
		return writePartial, r.writeErr(err)
	}`, `	_ = vfs.WriteFull(r.seg.file, r.buf, r.offset())`},
	{"sync", "error_of_taking_back_is_ignored", "wal/groupwrite.go",
		`	return r.seg.file.Truncate(r.offset()) == nil && `, `	_ = r.seg.file.Truncate(r.offset())
	return `},
	{"sync", "what_was_taken_back_is_not_synced", "wal/groupwrite.go",
		` == nil && r.seg.file.Sync() == nil`, ` == nil`},
	{"sync", "an_ended_segment_is_not_synced", "wal/lazysync.go", `range closed {`, `range closed[:0] {`},
	{"sync", "only_the_last_ended_segment_is_synced", "wal/lazysync.go", `range closed {`,
		`range closed[len(closed)-1:] {`},
	{"sync", "error_of_settling_is_ignored", "wal/lazysync.go", `	if err == nil {
		s.durable`, `	if true {
		s.durable`},
	{"sync", "what_ended_segments_refer_to_is_not_synced", "wal/lazysync.go", `	if unsynced {`,
		`	if unsynced && false {`},
	{"sync", "what_is_referred_to_beside_settling_is_not_synced", "wal/lazysync.go",
		`	err := s.syncSegments(closed, unsynced)
	s.mu.Lock()`, `	err := s.syncSegments(closed, unsynced)
	s.mu.Lock()
	s.unsyncedRefs = false`},
	{"ack", "acknowledged_before_what_has_ended_is_settled", "wal/groupwrite.go",
		`	g.sync = s.wantsSync(g.end, sync) && !s.hasUnsyncedSegments() && (`,
		`	g.sync = s.wantsSync(g.end, sync) && (`},
	{"ack", "a_waiter_beyond_the_synced_segments_has_no_leader", "wal/lazysync.go",
		`	if !s.leading { // Waiters`, `	if false { // Waiters`},
	{"sync", "the_end_of_a_segment_is_synced_for_who_wants_none", "wal/groupwrite.go",
		`!s.hasUnsyncedSegments() && (direct || !r.sealed())`,
		`!s.hasUnsyncedSegments() || r.sealed()`},
	{"sync", "a_new_segment_is_not_synced", "wal/preallocate.go", `	if err := file.Sync(); err != nil {
		return nil, fmt.Errorf("sync new log segment %s: %w", name, err)
	}`, ``},
	{"sync", "error_of_beginning_with_what_was_written_is_ignored", "wal/groupwrite.go",
		`		return writeComplete, s.startWriteback(g)`, `		_ = s.startWriteback(g)
		return writeComplete, nil`},
	{"sync", "a_piece_of_a_new_segment_that_did_not_get_there_is_ignored", "wal/preallocate.go",
		`			err = file.WriteBack(off-zeroChunk, zeroChunk)`,
		`			_ = file.WriteBack(off-zeroChunk, zeroChunk)`},
	{"sync", "the_name_of_a_new_segment_is_not_synced", "wal/preallocate.go",
		`	if err := p.opts.FS.SyncDir(p.opts.dir()); err != nil {
		return nil, fmt.Errorf("sync directory of new log segment %s: %w", name, err)
	}`, ``},
	{"sync", "a_recycled_header_is_not_synced", "wal/recycle.go", `	if err := seg.file.Sync(); err != nil {
		return fmt.Errorf("sync header of recycled log segment %s: %w", seg.name, err)
	}`, ``},
	{"sync", "the_name_of_a_recycled_segment_is_not_synced", "wal/recycle.go",
		`	if err := p.opts.FS.SyncDir(p.opts.dir()); err != nil {
		return fmt.Errorf("sync directory of recycled log segment %s: %w", name, err)
	}`, ``},
	{"sync", "a_retired_header_is_not_synced", "wal/recycle.go", `	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("sync header of retired`, `	if err := error(nil); err != nil {
		return fmt.Errorf("sync newHeader of retired`},
	{"order", "a_segment_that_is_too_small_is_used_again", "wal/recycle.go",
		`	if !ready && lowest.fileSize >= size {`, `	if !ready {`},
	{"order", "a_segment_that_is_too_small_is_kept_to_be_used_again", "wal/recycle.go",
		` < keep && s.fileSize >= size {`, ` < keep {`},
	{"order", "a_short_segment_has_no_room_for_its_seal", "wal/recycle.go",
		`uint64(s.fileSize)) - pageUnit }`, `uint64(s.fileSize)) }`},
	{"order", "a_later_write_covers_durable_records", "wal/groupwrite.go",
		`	if (g.sync || g.direct) && !r.sealed() {
		a.padTo(pad)
	}`, ``},
	{"ack", "acknowledged_before_the_sync", "wal/groupcommit.go", `	case end <= s.durableEnd():
		return true, nil`, `	case end <= s.writtenEnd():
		return true, nil`},
	{"ack", "unknown_is_reported_while_the_write_may_complete", "wal/groupcommit.go",
		`	case s.writing:`, `	case false:`},
	{"order", "two_groups_are_written_at_a_time", "wal/groupcommit.go",
		`	if !s.leading && !s.waitsForSegmentSync(end) {`, `	if !s.waitsForSegmentSync(end) {`},
	{"order", "a_group_is_submitted_beside_a_leader", "wal/asyncwrite.go",
		`end != l.End() || s.leading ||`, `end != l.End() ||`},
	{"order", "a_group_is_written_beside_a_submitted_one", "wal/asyncwrite.go", `	s.leading = true
`, ``},
	{"order", "a_record_that_references_a_value_is_submitted", "wal/asyncwrite.go",
		` && a.queue[0].ref == 0`, ``},
	{"order", "a_sync_waits_for_parts_that_may_be_given_up", "wal/appender.go",
		`		return a.commitStart.end
`, `		return LSN(a.end.Load())
`},
	{"order", "a_log_that_has_failed_writes_a_group", "wal/groupcommit.go",
		`		if s.state.err() != nil { // meanwhile`, `		if false {`},
	{"ack", "follower_of_a_failed_group_is_told_nil", "wal/groupcommit.go", `			w.err = err
			*last`, `			_ = err
			*last`},
	{"ack", "failed_where_the_fate_is_unknown", "wal/groupcommit.go", `	case end > s.maxSubmitted:`,
		`	case true:`},
	{"check", "checksum_of_a_record_is_not_looked_at", "wal/record.go",
		`xxhash.Sum64(b[recSalt:end]); got != want {`,
		`xxhash.Sum64(b[recSalt:end]); got != want && false {`},
	{"check", "salt_of_a_record_is_not_looked_at", "wal/record.go",
		`binary.LittleEndian.Uint64(b[recSalt:]); got != salt {`,
		`binary.LittleEndian.Uint64(b[recSalt:]); got != salt && false {`},
	{"check", "place_of_a_record_is_not_looked_at", "wal/record.go",
		`binary.LittleEndian.Uint64(b[recLSN:]); got != uint64(lsn) {`,
		`binary.LittleEndian.Uint64(b[recLSN:]); got != uint64(lsn) && false {`},
	{"check", "length_of_a_record_is_not_bounded", "wal/record.go",
		`	if int64(n) > int64(len(b)-recHeader) {`, `	if false {`},
	{"check", "replay_steps_over_a_gap", "wal/reader.go", `		if r.prev != p.prev {`,
		`		if r.prev != p.prev && false {`},
	{"check", "a_segment_of_another_store_is_a_leftover", "wal/scan.go",
		`			f.others = append(f.others, OtherSegment{File: name, StoreID: h.storeID})`,
		`			f.foreign = append(f.foreign, name)`},
	{"check", "a_segment_of_another_version_is_of_this_store", "wal/segment.go",
		`		return h, fmt.Errorf("segment has version %d, expected %d", got, segVersion)`,
		`		return segmentHeader{}, fmt.Errorf("segment has version %d, expected %d", got, segVersion)`},
	{"check", "store_of_a_segment_is_not_looked_at", "wal/scan.go",
		`	case h.checked && h.storeID != o.StoreID:`, `	case false:`},
	{"check", "a_later_record_is_no_witness", "wal/image.go", `		if r.synced > end {`,
		`		if r.synced > end && false {`},
	{"check", "the_note_is_no_witness", "wal/reader.go",
		`	if synced, ok := img.hint(); ok && synced > end {`,
		`	if synced, ok := img.hint(); ok && synced > end && false {`},
	{"check", "a_later_segment_is_no_witness", "wal/reader.go",
		`		if r, ok := later.durabilityEvidence(firstRecord, end); ok {`,
		`		if r, ok := later.durabilityEvidence(firstRecord, end); ok && false {`},
	{"check", "any_record_of_a_later_segment_is_a_witness", "wal/reader.go",
		`later.durabilityEvidence(firstRecord, end)`, `later.durabilityEvidence(firstRecord, 0)`},
	{"check", "the_meta_page_is_no_witness", "wal/reader.go", `	if durable > end {`,
		`	if durable > end && false {`},
	{"check", "a_seal_without_a_successor_is_an_end", "wal/reader.go",
		`		case i+1 == len(f.segments) || f.segments[i+1].number != img.number+1:
			return`, `		case i+1 == len(f.segments):
			return p.tail, nil
		case f.segments[i+1].number != img.number+1:
			return`},
	{"replay", "a_record_without_its_commit_is_replayed", "wal/commit.go",
		`	if c.add(r.payload); last {`, `	if c.add(r.payload); last || true {`},
	{"replay", "parts_of_a_commit_that_was_given_up_stay", "wal/commit.go",
		`first: r.lsn, parts: c.parts[:0]}`, `first: r.lsn, parts: c.parts}`},
	{"room", "parts_of_a_large_commit_are_kept", "wal/commit.go",
		`	if size > p.f.opts.SegmentSize/keptFraction {`, `	if false {`},
	{"replay", "the_last_commit_is_left_out", "wal/reader.go", `		if err == nil && !sealed {
			err = p.deliver()
		}
`, ``},
	{"rollback", "parts_of_an_aborted_commit_stay_in_the_queue", "wal/appender.go",
		`	c.buffer.buf = c.buffer.buf[:c.size]
	c.buffer.end = c.end
	a.pos, a.prev = c.pos, c.prev`, `	c.buffer.end = c.end`},
	{"replay", "a_void_takes_nothing_back", "wal/reader.go", `			p.commit = commit{}
			p.setEnd(end)`, `			p.setEnd(end)`},
	{"replay", "a_commit_that_is_held_is_read_from_the_next_segment", "wal/commit.go",
		`bytes.Clone(c.parts[c.own])`, `bytes.TrimPrefix(c.parts[c.own], nil)`},
	{"room", "a_void_may_find_no_room", "wal/appender.go", `pageUnit)+recHeader <= limit`,
		`pageUnit) <= limit+pageUnit`},
	{"check", "a_void_of_nothing_is_no_damage", "wal/reader.go", `			if !p.commit.held {`, `	if false {`},
	{"ack", "a_submitted_commit_is_acknowledged_before_its_write_completes", "wal/asyncwrite.go",
		`	g := s.takeGroup(true)
	s.mu.Unlock()`, `	g := s.takeGroup(true)
	s.durable.Store(uint64(g.end))
	s.mu.Unlock()`},
	{"ack", "a_group_is_not_copied", "wal/groupwrite.go",
		`		if err := r.seg.file.WriteMapped(r.buf, r.offset()); err != nil {`,
		`		if err := error(nil); err != nil {`},
	{"ack", "a_part_of_a_group_is_not_copied", "wal/groupwrite.go",
		`WriteMapped(r.buf, r.offset())`, `WriteMapped(r.buf[:len(r.buf)-1], r.offset())`},
	{"order", "a_group_is_copied_to_a_page_that_was_not_written", "wal/groupwrite.go",
		` && r.start+LSN(len(r.buf)) <= s.zeroedTo {`, ` {`},
	{"order", "a_group_that_is_wanted_synced_is_copied", "wal/groupwrite.go",
		`	if !g.sync && !g.direct && r.start`, `	if !g.direct && r.start`},
	{"order", "a_log_restarts_beside_its_leader", "wal/diskfull.go",
		`	for y.leading || y.syncingClosed {`, `	for y.syncingClosed {`},
	{"order", "a_log_begins_anew_where_another_one_ends_later", "wal/diskfull.go",
		`	if err := l.Sync(); err != nil {`, `	if err := error(nil); err != nil {`},
	{"order", "the_log_before_stays_where_a_spare_is_there", "wal/diskfull.go",
		`} else if err := old[0].invalidate(); err != nil {`, `} else if false {
		err := error(nil)`},
	{"order", "a_file_of_the_log_before_counts_on", "wal/recycle.go", `	p.bytes.Add(-s.fileSize)`,
		`	_ = s.fileSize`},
	{"room", "what_a_log_that_begins_anew_has_had_is_forgotten", "wal/diskfull.go",
		`	a.fullSegmentBytes += last.fileSize
`, ``},
	{"room", "a_checkpoint_in_place_counts_the_log_before", "txn/diskfull.go",
		`	k.logSince.Store(k.s.log.Volume())
`, ``},
	{"order", "a_checkpoint_in_place_begins_no_session", "txn/diskfull.go",
		`	return c, k.s.beginIn(k.s.log)`, `	return c, nil`},
	{"order", "a_checkpoint_in_place_keeps_the_log", "txn/diskfull.go",
		`	if err := k.s.log.RestartInPlace(); err != nil {`,
		`	if err := k.s.log.Sync(); err != nil {`},
	{"sync", "error_of_a_submitted_write_is_ignored", "wal/asyncwrite.go",
		`		outcome, err = writePartial, g.buffer.writeErr(err)`, `		err = nil`},
}

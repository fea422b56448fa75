package memstore

// Stats are the size of a table and its evictions.
type Stats struct {
	Keys         int    // rows in use, without overflow rows
	Holds        int    // open reservations, including expired ones that were not removed yet
	Bytes        int64  // of the rows and their index, without full keys, reservations and logs
	Evicted      uint64 // evicted rows, most of which had nothing in use
	Forgiven     uint64 // units in use in evicted rows, which were lost
	OverflowHits uint64 // charges to overflow rows
	MostMoved    int    // the most rows that one call has moved to make room
}

// Stats returns the current figures. It takes no lock, so they may be of slightly
// different instants.
func (t *Table) Stats() Stats {
	return Stats{
		Keys:         int(t.keys.Load()),
		Holds:        int(t.holds.open.Load()),
		Bytes:        t.bytes.Load(),
		Evicted:      t.evicted.Load(),
		Forgiven:     t.forgiven.Load(),
		OverflowHits: t.overflowHits.Load(),
		MostMoved:    int(t.mostMoved.Load()),
	}
}

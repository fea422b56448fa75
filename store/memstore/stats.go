package memstore

// Stats tells how full a table is, and what that has cost.
type Stats struct {
	Keys         int    // rows in use, without overflow rows
	Holds        int    // open reservations, expired ones that were not met since included
	Bytes        int64  // of the rows and what finds them; full keys, reservations and logs come on top
	Evicted      uint64 // rows dropped, most of which had nothing in use
	Forgiven     uint64 // units in use of rows that were dropped: what eviction gave away
	OverflowHits uint64 // charges that met an overflow row
	MostMoved    int    // the most rows that one call has moved to make room
}

// Stats counts. It takes no lock and writes nothing, so figures of the same
// moment may differ by what was going on.
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

// Package faults has no code but tests: they break what weir stands on, the network and
// Redis, under load, and look from outside at what the daemons decide meanwhile.
//
// Each test is a row of the fault matrix. It starts real redis-server processes, real
// daemons and, where the network is to blame, a proxy in between; a client asks the
// daemons at a steady rate and keeps a history of all answers, which package history
// judges.
//
//	go test ./...        short outages and low rates; times are printed, not judged
//	make faults          the whole of it, which writes docs/faults.md
package faults

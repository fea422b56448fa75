// Package faults has only tests: they break what weir depends on, such as the network and
// Redis, under load, and observe from outside what the daemons decide meanwhile.
//
// Each test is a row of the fault matrix. It starts real redis-server processes, real
// daemons and, where the network fails, a proxy in between; a client calls the
// daemons at a steady rate and keeps a history of all answers, which package history
// judges.
//
//	go test ./...        short outages and low rates; times are printed, not judged
//	make faults          the whole of it, which writes docs/faults.md
package faults

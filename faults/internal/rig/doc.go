// Package rig is what a fault is tried on: daemons, a load on them, and a bad network
// between them and Redis.
//
//	program := rig.Build(dir)
//	fleet := rig.StartFleet(t, program, 3, "--redis", server.Addr())
//	load := fleet.StartLoad(rig.Mix{Rate: 1500, Hot: 3, Cold: 17, HotShare: 0.6})
//	… break something, and mend it …
//	decisions := load.Stop()
//	fleet.AwaitShared(10 * time.Second)
//
// Everything ends with the test.
package rig

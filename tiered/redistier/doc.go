// Package redistier implements tiered.Bus with Redis Pub/Sub: nodes publish which keys are
// denied, which were reset and which policies have changed, and heartbeats count the nodes.
//
//	bus, err := redistier.New(ctx, redistier.Config{
//		Redis: redisstore.Server{Addrs: []string{"127.0.0.1:6379"}},
//	})
//	defer bus.Close()
//	limiter, err := tiered.New(tiered.Config{Store: store, Local: local, Bus: bus})
//
// A single node needs no bus. Neither does a fleet that may take tiered.Config.MaxDeny to
// notice a reset, and whose size is set in tiered.Config.Nodes.
//
// # In Redis
//
//	weir:tier    the Pub/Sub channel; weir:tier:2 for database 2
//	weir:nodes   the live nodes: a sorted set by the time of the last heartbeat
//
// A Bus has one connection: to the server or, in a Cluster, to the node that holds
// weir:nodes; the cluster bus forwards messages to the other nodes. A denial takes
// about 30 bytes besides its policy and key, and the messages of a Publish are sent
// together.
//
// # Guarantees
//
//   - A received denial ends no later by the receiver's clock than by the publisher's.
//     The clocks may have any offset, as long as their rates and that of Redis's clock
//     differ by 200 ppm at most. It ends earlier by two heartbeats' round trips at most,
//     and 200 ppm.
//   - A node does not receive its own messages.
//   - A listener receives nil when the subscription begins, and when it begins again
//     after it was lost; from then on it receives all messages. A server that does not
//     respond is detected by the next heartbeat, and the connection closed
//     Server.Timeout later.
//   - A node that calls Close is no longer counted by the next heartbeat of the others; one
//     that crashes is no longer counted after 3.5 × Config.Every. While Redis is
//     unavailable, the last count remains. In the first 2 × Config.Every after that the
//     count may only rise, because a server that has lost its data must first receive
//     a heartbeat from every node.
//   - Publish, heartbeats and listeners do not wait for each other. A listener that
//     falls behind by 65,536 messages receives nil in their place.
//
// # What it does not promise
//
// Messages are lost while there is no connection, and when a server fails; Redis does not
// store them. Two messages of a node are in order only if the Publish of the first had
// returned before that of the second began.
//
// If a server's clock is set forward, or a replica whose clock is ahead is promoted, a
// denial in flight at that moment may end too late, by its time in flight at most. A
// larger step makes the denial appear to come from the future, and it is dropped.
//
// # Rights
//
// A Redis user needs these rights, besides those for the store:
//
//	~weir:* &weir:tier* -@all +hello +ping +info +client +eval +evalsha +time +pexpire +zadd +zrangebyscore +zrem +publish +subscribe
//
// A cluster requires +cluster and +asking in addition, to find its nodes.
package redistier

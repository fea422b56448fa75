// Package redistier is a tiered.Bus over Redis: nodes tell each other which keys are
// denied, what was reset and which limits were changed, and count each other.
//
//	bus, err := redistier.New(ctx, redistier.Config{
//		Redis: redisstore.Server{Addrs: []string{"127.0.0.1:6379"}},
//	})
//	defer bus.Close()
//	limiter, err := tiered.New(tiered.Config{Store: store, Local: local, Bus: bus})
//
// A node alone needs none, and one that may take Config.MaxDeny of package tiered to
// notice a reset does not either.
//
// # In Redis
//
//	weir:tier    the channel for words; weir:tier:2 if they are of database 2
//	weir:nodes   who is alive: a sorted set of nodes by when they were last heard of
//
// A Bus has one connection, to the server or, in a Cluster, to the node with
// weir:nodes, and the cluster's own bus takes words to the others. A denial takes
// about 30 bytes besides its policy and key, and the words of a Publish go together.
//
// # Guarantees
//
//   - A denial that is heard ends no later, by the reader's clock, than it does by the
//     publisher's. Their clocks may differ as they like, as long as none of them and
//     Redis's runs faster than another by more than 200 ppm. It ends earlier by the
//     time of two heartbeats' round trips at most, and 200 ppm.
//   - A node does not hear itself.
//   - A listener hears nil when its subscription has begun, and when it has begun
//     again after it was lost, from then on everything. A server that is silent is
//     found by the next heartbeat, and given up Server.Timeout after that.
//   - A node that ends by Close is not counted by the next heartbeat of the others, one that
//     dies 3.5 × Config.Every later. While Redis is away, the last count stays. In the
//     first 2 × Config.Every after that it may rise only, since a server that has lost
//     its memory has to be told by everybody first that they are alive.
//   - Publish, heartbeats and listeners do not wait for each other. A listener that
//     falls behind by 65,536 words hears nil in their place.
//
// # What it does not promise
//
// Words are lost while there is no connection, and with a server that fails; Redis keeps
// none. Words of one node are in order only if the second was published after the
// first had returned.
//
// If a server's clock is set forward, or one takes over whose clock is ahead, a denial
// on the way at that moment may end later than it is true, by the time it was on the
// way: those that would by more are seen to come from the future, and dropped.
//
// # Rights
//
// A user with no more rights than these will do, besides those that the store wants:
//
//	~weir:* &weir:tier* -@all +hello +ping +info +client +eval +evalsha +time +pexpire +zadd +zrangebyscore +zrem +publish +subscribe
//
// A cluster takes +cluster and +asking in addition, for finding the nodes.
package redistier

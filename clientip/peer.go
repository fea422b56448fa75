package clientip

// TrustsPeer says whether whoever sent a request is a trusted proxy, whose headers count.
func (r *Resolver) TrustsPeer(remoteAddr string) bool {
	peer, ok := r.Peer(remoteAddr)
	return r.trustsPeer(peer, ok, remoteAddr)
}

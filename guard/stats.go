package guard

// Stats are counts of a Guard in this process, for metrics.
type Stats struct {
	Endpoints     []EndpointStats // those with a name, in the order of the configuration
	InFlight      int64           // requests that are being handled
	Subjects      int64           // rows of subjects that this process keeps: see Config.MaxSubjects
	Violations    [4]int64        // by Kind, those in shadow not counted
	Shadowed      [4]int64        // by Kind, in shadow
	Refused       [5]int64        // by Cause
	Exempted      int64           // requests that an exemption admitted
	Subscriptions int64           // open ones
	Items         int64           // of all open subscriptions
	RefusedSubs   SubscriptionRefusals
}

// EndpointStats are counts of an endpoint.
type EndpointStats struct {
	Name     string
	Allowed  int64
	Denied   int64
	Shadowed int64 // would have been denied
}

// SubscriptionRefusals are refusals by reason.
type SubscriptionRefusals struct {
	TooMany      int64 // Subscriptions.PerSubject
	TooManyItems int64 // ItemsEach and ItemsTotal
	TooFast      int64 // Create and Modify
}

// Stats returns the counts.
func (g *Guard) Stats() Stats { return Stats{} }

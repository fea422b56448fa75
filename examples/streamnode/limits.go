package main

import (
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
)

const (
	streamService = "/river.StreamService/"
	appRegistry   = "/river.AppRegistryService/"
)

// endpoints are the procedures of the node and their limits for each user. A rate of 0 means none.
//
// The bursts of reads are twice what an app needs when it starts: see appStart. Those of writes are what
// a person can use at once. Without a burst it is the rate, which is a whole minute's calls at once.
var endpoints = []struct {
	service, name string
	rate          int64
	per           time.Duration
	burst         int64
}{
	{streamService, "CreateStream", 10, time.Minute, 5},
	{streamService, "CreateMediaStream", 5, time.Minute, 5},
	{streamService, "AddEvent", 100, time.Minute, 50},
	{streamService, "AddMediaEvent", 20, time.Minute, 10},
	{streamService, "GetStream", 1000, time.Minute, 60},
	{streamService, "GetStreamEx", 500, time.Minute, 10},
	{streamService, "GetMiniblocks", 200, time.Minute, 20},
	{streamService, "GetLastMiniblockHash", 2000, time.Minute, 24},
	{appRegistry, "Register", 1, time.Hour, 1},
	{appRegistry, "SetAppMetadata", 10, time.Minute, 10},
	{appRegistry, "GetAppMetadata", 0, 0, 0},
	{appRegistry, "GetStatus", 0, 0, 0},
	{appRegistry, "ValidateBotName", 0, 0, 0},

	// The limits of these are guard.Subscriptions. They count what a call adds and nothing that it
	// removes, because removing reduces load.
	{streamService, "SyncStreams", 0, 0, 0},
	{streamService, "AddStreamToSync", 0, 0, 0},
	{streamService, "ModifySync", 0, 0, 0},
	{streamService, "RemoveStreamFromSync", 0, 0, 0},
}

// limits returns the configuration of the node's guard. A penalty lasts as long as penalty says; 0 is
// the default of 5 minutes. Exempt is the address of a service whose reads of miniblocks are not limited.
func limits(penalty time.Duration, exempt string) guard.Config {
	c := guard.Config{
		// Before authentication, for each address. Many users may share one.
		BeforeAuth: guard.BeforeAuth{
			PerIP:    []ruleset.Limit{{Limit: weir.Limit{Rate: 12_000, Per: weir.Every(time.Minute), Burst: 500}}},
			InFlight: 2000, InFlightPerIP: 500,
		},
		// A load balancer on this machine adds the addresses of clients.
		Identity: guard.Identity{ClientIP: clientip.Config{
			Header: "x-forwarded-for", Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		}},
		InFlight: 100, // calls of one user at once, open subscriptions included

		Default:   guard.Endpoint{Name: "others", Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
		Penalties: &guard.Penalties{After: 5, Multiplier: 0.5, For: penalty},
		Abuse:     &guard.Abuse{Requests: 60, Per: 2 * time.Second},
		Subscriptions: &guard.Subscriptions{
			PerSubject: 10, ItemsEach: 100, ItemsTotal: 500,
			// Whoever was disconnected opens all subscriptions again at once.
			Create: weir.Limit{Rate: 5, Per: weir.Every(time.Minute), Burst: 15},
			Modify: weir.PerMinute(30),
		},
		Exemptions: []guard.Exemption{{
			Subject: "user:" + exempt, Endpoints: []string{streamService + "GetMiniblocks"}, Until: time.Now().AddDate(0, 3, 0),
		}},
	}
	for _, e := range endpoints {
		endpoint := guard.Endpoint{Pattern: e.service + e.name, Name: e.name, Disabled: e.rate == 0}
		if e.rate > 0 {
			endpoint.Limits = []ruleset.Limit{{Limit: weir.Limit{Rate: e.rate, Per: weir.Every(e.per), Burst: e.burst}}}
		}
		c.Endpoints = append(c.Endpoints, endpoint)
	}
	return c
}

// pathOf returns the path of an endpoint.
func pathOf(name string) string {
	for _, e := range endpoints {
		if e.name == name {
			return e.service + name
		}
	}
	panic("no endpoint " + name)
}

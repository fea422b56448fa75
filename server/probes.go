package server

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir/gateway"
)

// probes run the routes of a server: each in a goroutine, from start to stop.
type probes struct {
	mu      sync.Mutex // guards the fields below
	routes  map[string]*gateway.Route
	running map[*gateway.Route]context.CancelFunc // nil before start and after stop
	wg      sync.WaitGroup
}

// keep replaces the routes: it ends the probes of those that are gone, and begins those of new ones.
func (p *probes) keep(routes map[string]*gateway.Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes = routes
	p.syncLocked()
}

func (p *probes) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = map[*gateway.Route]context.CancelFunc{}
	p.syncLocked()
}

// syncLocked requires p.mu.
func (p *probes) syncLocked() {
	if p.running == nil {
		return
	}
	for r, end := range p.running {
		if p.routes[r.Name()] != r {
			end()
			delete(p.running, r)
		}
	}
	for _, r := range p.routes {
		if p.running[r] != nil {
			continue
		}
		ctx, end := context.WithCancel(context.Background())
		p.running[r] = end
		p.wg.Go(func() { r.Run(ctx) })
	}
}

// stopProbes is how long stop waits for probes: they end with their context, unless a transport ignores it.
const stopProbes = 3 * time.Second

// stop ends all probes and waits for them, but no longer than stopProbes.
func (p *probes) stop() {
	p.mu.Lock()
	for _, end := range p.running {
		end()
	}
	p.running = nil
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.wg.Wait()
	}()
	timer := time.NewTimer(stopProbes)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/connectapi"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/weirprom"
)

// handlers are what the listeners serve.
type handlers struct{ http, admin http.Handler }

// newHandlers makes the handlers. HTTP serves the API, and Admin the operators' paths. Without an
// Admin listener, HTTP serves those, too, if it is local.
func (s *Server) newHandlers() (handlers, error) {
	metrics, err := s.newMetrics()
	if err != nil {
		return handlers{}, err
	}
	api := httpapi.New(httpapi.Config{Core: s.core, State: func() *httpapi.State { return s.state.Load().http }, Ready: s.readiness, Degraded: s.cfg.Degraded})
	path, connect := connectapi.New(s.core, func() *call.State { return s.state.Load().call })
	guardPath, guard := connectapi.NewGuard(s.core, func() *call.State { return s.state.Load().call })
	calls := s.tracer.Handler(api, describe)
	admin := s.newAdmin(metrics)
	events := route{prefix: "/admin/v1/events", write: unlimited, stopping: s.stopping}
	onHTTP := calls
	if s.cfg.Admin.Address == "" && s.cfg.HTTP.IsLocal() {
		onHTTP = splitter{admin: admin, calls: calls}
	}
	return handlers{
		http: s.newGate(onHTTP, events, route{prefix: path, handler: s.tracer.Handler(connect, describeRPC)},
			route{prefix: guardPath, handler: s.tracer.Handler(guard, describeRPC)},
			route{prefix: gatewayPath, handler: s.newRouteHandler(), write: unlimited, anyOrigin: true}),
		admin: s.newGate(splitter{admin: admin, calls: healthOnly(api)}, events),
	}, nil
}

// splitter sends operators' paths to one handler and the rest to another.
type splitter struct{ admin, calls http.Handler }

func (h splitter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isAdminPath(r.URL.Path) {
		h.admin.ServeHTTP(w, r)
		return
	}
	h.calls.ServeHTTP(w, r)
}

func isAdminPath(path string) bool {
	return path == "/" || path == "/metrics" || strings.HasPrefix(path, "/admin/") || strings.HasPrefix(path, "/assets/")
}

// healthOnly is the part of the API that the admin listener serves.
func healthOnly(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/healthcheck", "/readyz":
			api.ServeHTTP(w, r)
		default:
			httpapi.NotFound(w, r)
		}
	})
}

// newAdmin makes the operators' handler: the admin API, metrics and the page.
func (s *Server) newAdmin(metrics http.Handler) http.Handler {
	api := adminapi.New(adminapi.Config{
		Engine: s.core.Engine, State: s.adminState,
		ListOverrides: func(ctx context.Context) ([]Override, error) { return s.overrides.List(ctx) },
		PutOverride:   s.putOverride, RemoveOverride: s.removeOverride,
		Top: s.observer.Top, Subscribe: s.observer.Subscribe, SubscribeViolations: s.observer.SubscribeViolations, Stats: s.cfg.Stats, Guard: s.currentGuard, SubscribeLevels: s.observer.SubscribeLevels, Budgets: s.accounts, Routes: s.routeStats,
		ResumeUpstream: s.resumeUpstream, ResumeBudget: s.resumeBudget,
		Version: s.cfg.Version, Log: s.cfg.Log,
	})
	guarded := s.operatorsOnly(metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/metrics":
			guarded.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/admin/"):
			api.ServeHTTP(w, r)
		default:
			dashboard.Serve(w, r)
		}
	})
}

// operatorsOnly requires an operator with the scope read.
func (s *Server) operatorsOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.state.Load().call.Authenticator.Operator(r, identity.Read); err != nil {
			err.Write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// newMetrics makes /metrics. Its series are bounded: see package weirprom.
func (s *Server) newMetrics() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	list := append([]prometheus.Collector{
		s.observer.Decisions(), s.reloads, weirprom.NewAuthFailures(s.failures.Each), weirprom.NewGuard(s.guardStats), weirprom.NewBudgets(s.budgetUsages), weirprom.NewUpstreams(s.routeStats), weirprom.NewBuildInfo(s.cfg.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, s.cfg.Collectors...)
	for _, c := range list {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: promLog{s.cfg.Log}, MaxRequestsInFlight: 4}), nil
}

// readiness is the result of GET /readyz. Everybody may read it, so it says that a reload failed,
// and not why: the error has lines of the file.
func (s *Server) readiness() (bool, string) {
	if s.troubleText() == "" {
		return s.ready.Load(), ""
	}
	return s.ready.Load(), "the last reload failed; operators see why at /admin/v1/config"
}

// promLog logs errors of /metrics.
type promLog struct{ log *slog.Logger }

func (l promLog) Println(v ...any) { l.log.Error("metrics", "error", fmt.Sprint(v...)) }

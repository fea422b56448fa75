package main

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirconnect"
	"github.com/weirlimit/weir/weirprom"
)

// message is what all procedures receive and send: a JSON object. Real services have generated types.
type message = structpb.Struct

func object(fields map[string]any) *message { return weir.Must(structpb.NewStruct(fields)) }

// text returns a field of a message, "" if it has none.
func text(m *message, field string) string { return m.GetFields()[field].GetStringValue() }

// count returns the length of a list in a message.
func count(m *message, field string) int64 {
	return int64(len(m.GetFields()[field].GetListValue().GetValues()))
}

// newNode returns the service and its guard. The limits are in memory; with redisstore in the place of
// memstore, all nodes would share them.
func newNode(c guard.Config) (http.Handler, *guard.Guard, error) {
	table := weir.Must(memstore.New(memstore.Config{}))
	g, err := guard.New(table, c)
	if err != nil {
		return nil, nil, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(weirprom.NewGuard(g.Stats), weirprom.NewMemstore(table.Stats))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))

	limited := connect.WithInterceptors(weirconnect.New(g, weirconnect.Authenticate(authenticate), weirconnect.Verify(creator)))
	s := &syncs{guard: g}
	for _, e := range endpoints {
		path, method := e.service+e.name, echo
		switch e.name {
		case "SyncStreams":
			mux.Handle(path, connect.NewServerStreamHandler(path, s.open, limited))
			continue
		case "AddStreamToSync", "RemoveStreamFromSync", "ModifySync":
			method = s.modify
		case "AddEvent", "AddMediaEvent":
			method = addEvent
		}
		mux.Handle(path, connect.NewUnaryHandler(path, method, limited))
	}
	return mux, g, nil
}

// echo stands for what a real node does.
func echo(_ context.Context, r *connect.Request[message]) (*connect.Response[message], error) {
	return connect.NewResponse(r.Msg), nil
}

func addEvent(ctx context.Context, r *connect.Request[message]) (*connect.Response[message], error) {
	if _, ok := creator(ctx, r.Msg); !ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the event is not signed by its creator"))
	}
	return echo(ctx, r)
}

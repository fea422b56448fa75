package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/weirconnect"
)

// syncs are the calls of SyncStreams that are open. Streams are items of their subscriptions.
type syncs struct {
	guard  *guard.Guard
	opened atomic.Int64
	byID   sync.Map // of string to openSync
}

type openSync struct {
	*guard.Subscription
	owner string
}

// open is SyncStreams. The subscription ends with ctx, so that nothing stays in use when the caller leaves
// or the connection breaks.
func (s *syncs) open(ctx context.Context, r *connect.Request[message], out *connect.ServerStream[message]) error {
	owner, ok := guard.SubjectOf(ctx)
	if !ok {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("subscriptions need a token"))
	}
	sub, d, err := s.guard.Subscribe(ctx, owner, count(r.Msg, "add"))
	switch {
	case err != nil:
		return connect.NewError(connect.CodeUnavailable, err)
	case sub == nil:
		return weirconnect.SubscriptionError(d)
	}
	defer sub.Close()
	id := "sync-" + strconv.FormatInt(s.opened.Add(1), 10)
	s.byID.Store(id, openSync{sub, owner.Key})
	defer s.byID.Delete(id)
	if err := out.Send(object(map[string]any{"sync": id})); err != nil {
		return err
	}
	<-sub.Context().Done() // a real node sends the events of the streams until then
	return context.Cause(sub.Context())
}

// modify is AddStreamToSync, RemoveStreamFromSync and ModifySync. Removing is never refused, and makes
// room for what is added.
func (s *syncs) modify(ctx context.Context, r *connect.Request[message]) (*connect.Response[message], error) {
	found, _ := s.byID.Load(text(r.Msg, "sync"))
	open, ok := found.(openSync)
	if owner, _ := guard.SubjectOf(ctx); !ok || open.owner != owner.Key {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the caller has no such subscription"))
	}
	open.Remove(count(r.Msg, "remove"))
	if add := count(r.Msg, "add"); add > 0 {
		d, err := open.Add(ctx, add)
		if err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
		if !d.Allowed {
			return nil, weirconnect.SubscriptionError(d)
		}
	}
	return connect.NewResponse(object(map[string]any{"streams": open.Items()})), nil
}

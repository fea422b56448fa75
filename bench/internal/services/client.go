package services

import (
	"context"
	"errors"
	"fmt"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// Connections is how many gRPC connections the callers share: as many as an Envoy with two
// workers has to its rate limit service.
const Connections = 2

// An asker asks a server on behalf of one caller. It is not safe for concurrent use: its
// memory is made once.
type asker interface {
	// ask asks for one unit of each key in one go. It returns how many were admitted.
	ask(ctx context.Context, keys []string) (admitted int, err error)
}

// askers are those of all callers of a server.
type askers struct {
	list  []asker
	close func() error
}

// A protocol connects so many callers to a server. Whoever asks for several keys at once
// uses what the protocol has for it.
type protocol func(s *server, rule string, callers int) (askers, error)

// overGRPC is a protocol over shared connections.
func overGRPC(connect func(conn *grpc.ClientConn, rule string) asker) protocol {
	return func(s *server, rule string, callers int) (askers, error) {
		var conns []*grpc.ClientConn
		closeAll := func() (err error) {
			for _, c := range conns {
				err = errors.Join(err, c.Close())
			}
			return err
		}
		for range Connections {
			conn, err := grpc.NewClient("passthrough:///"+s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return askers{}, errors.Join(err, closeAll())
			}
			conns = append(conns, conn)
		}
		all := askers{close: closeAll}
		for i := range callers {
			all.list = append(all.list, connect(conns[i%len(conns)], rule))
		}
		return all, nil
	}
}

// An envoyAsker does as Envoy does: ShouldRateLimit, with a descriptor for each key.
type envoyAsker struct {
	client  rlsv3.RateLimitServiceClient
	rule    string
	request *rlsv3.RateLimitRequest
}

func newEnvoyAsker(conn *grpc.ClientConn, rule string) asker {
	return &envoyAsker{rlsv3.NewRateLimitServiceClient(conn), rule, &rlsv3.RateLimitRequest{Domain: domain}}
}

func (a *envoyAsker) ask(ctx context.Context, keys []string) (int, error) {
	for len(a.request.Descriptors) < len(keys) {
		entry := &rlcommon.RateLimitDescriptor_Entry{Key: a.rule}
		a.request.Descriptors = append(a.request.Descriptors, &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry}})
	}
	a.request.Descriptors = a.request.Descriptors[:len(keys)]
	for i, key := range keys {
		a.request.Descriptors[i].Entries[0].Value = key
	}
	answer, err := a.client.ShouldRateLimit(ctx, a.request)
	if err != nil {
		return 0, err
	}
	admitted := 0
	for _, s := range answer.GetStatuses() {
		if s.GetCode() == rlsv3.RateLimitResponse_OK {
			admitted++
		}
	}
	return admitted, nil
}

// A checkAsker uses weir's own service: Check, or CheckBatch for several keys.
type checkAsker struct {
	client weirv1.LimiterServiceClient
	single *weirv1.CheckRequest
	batch  *weirv1.CheckBatchRequest
}

func newCheckAsker(conn *grpc.ClientConn, rule string) asker {
	return &checkAsker{
		weirv1.NewLimiterServiceClient(conn), &weirv1.CheckRequest{Policy: rule}, &weirv1.CheckBatchRequest{Policy: []string{rule}},
	}
}

func (a *checkAsker) ask(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 1 {
		a.single.Key = keys[0]
		answer, err := a.client.Check(ctx, a.single)
		if answer.GetAllowed() {
			return 1, err
		}
		return 0, err
	}
	a.batch.Key = keys
	answer, err := a.client.CheckBatch(ctx, a.batch)
	if err != nil {
		return 0, err
	}
	if n := len(answer.GetAllowed()); n != len(keys) {
		return 0, fmt.Errorf("%d answers for %d checks", n, len(keys))
	}
	admitted := 0
	for _, allowed := range answer.GetAllowed() {
		if allowed {
			admitted++
		}
	}
	return admitted, nil
}

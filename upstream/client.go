package upstream

import "context"

type clientKey struct{}

// WithClient returns a context for requests of a client, where several share a pool: see Call.Client. Package gateway passes
// it on.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// ClientOf returns the client of WithClient, "" if there is none.
func ClientOf(ctx context.Context) string {
	name, _ := ctx.Value(clientKey{}).(string)
	return name
}

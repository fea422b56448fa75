package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// serve runs the provider until ctx ends.
func serve(ctx context.Context, o options) error {
	server, err := o.listen(o.address)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s serves JSON-RPC, and /stats\n", server.Addr)
	<-ctx.Done()
	return server.Close()
}

// listen runs the provider in the background. The server's Addr is where it listens.
func (o options) listen(address string) (*http.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := newProvider(chain{o.blockTime}, throughputCosts(), o.jitter, o.seed)
	server := &http.Server{Addr: listener.Addr().String(), Handler: p, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	return server, nil
}

// demonstrate runs the provider here and both workers in processes of their own, and writes a summary.
func demonstrate(ctx context.Context, o options) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := o.listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Close()
	var rows [2][]byte
	var errs [2]error
	var all sync.WaitGroup
	for i, name := range []string{"sync", "backfill"} {
		cmd := exec.CommandContext(ctx, program, slices.Concat([]string{name}, o.args, []string{"-address", server.Addr})...)
		cmd.Stderr = os.Stderr
		all.Go(func() { rows[i], errs[i] = cmd.Output() })
	}
	all.Wait()
	report(os.Stdout, slices.Concat(rows[:]...), server.Handler.(*provider).snapshot())
	return errors.Join(errs[:]...)
}

// report writes what the workers and the provider have counted.
func report(out io.Writer, rows []byte, p stats) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nWORKER\tCALLS\tREFUSED\tWAITED\tDONE\n%s\n", rows)
	quota := p.ElapsedMS * capacity / span.Milliseconds()
	fmt.Fprintf(w, "PROVIDER\tUNITS\nadmitted\t%d, %.1f%% of 500 per second\n", p.Granted, float64(p.Granted)*100/float64(quota))
	fmt.Fprintf(w, "most in 10 s\t%d of %d\n", p.Peak, capacity)
	for _, method := range slices.Sorted(maps.Keys(p.Units)) {
		fmt.Fprintf(w, "%s\t%d\n", method, p.Units[method])
	}
	fmt.Fprintf(w, "\nThe provider has refused %d calls.\n", p.Refused)
}

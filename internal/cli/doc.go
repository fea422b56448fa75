// Package cli is the command line of weir: it reads arguments, wires the parts
// together and turns errors into exit codes. A main function needs one call:
//
//	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
//
// What a command prints for its reader goes to stdout, logs and errors go to
// stderr. Exit codes are 0 for success, 1 for a failure and 2 for invalid
// arguments; an error is one line that begins with "weir: ".
//
// The package has no rules of its own: settings are validated by packages config and
// server.
package cli

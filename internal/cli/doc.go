// Package cli is the command line of weir: it reads arguments, wires the parts
// together and turns errors into exit codes. A main function needs one call:
//
//	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
//
// What a command prints for its reader goes to stdout, logs and errors go to
// stderr. Exit codes are 0 for success, 1 for a failure and 2 for arguments that
// make no sense; an error is one line that begins with "weir: ".
//
// The package knows no rules of its own. What a server refuses, package server
// refuses.
package cli

// Package process builds programs of this repository and runs them for measurements, each
// as a process of its own: the cost of a server can then be separated from that of its clients.
package process

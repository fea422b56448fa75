// Package process builds programs of this repository and runs them for measurements, each
// as a process of its own: what a server costs can then be told from what its clients cost.
package process

// Package single compares limiters without keys: one limit, called from one or
// many goroutines of one process.
package single

// Package report writes what package harness measured: as a table for people at
// a terminal, as JSON lines for programs, and as a Markdown page with a chart
// for readers of the documentation.
package report

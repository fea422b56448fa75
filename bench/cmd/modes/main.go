// Command modes measures the modes of package tiered, with one to four nodes on one
// redis-server:
//
//	go run -C bench ./cmd/modes [-quick] [-out dir]
//
// It prints tables. A full run, which takes about two minutes, also writes them and the
// charts into the documentation. The exit code is 1 if a mode has broken its bound, or if
// Redis did not answer.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/bench/internal/modes"
)

func main() {
	quick := flag.Bool("quick", false, "measure for half a minute, and write no documentation")
	out := flag.String("out", filepath.Join("..", "docs"), "write modes.md and its charts into this `directory`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "modes: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	sizes, dir := modes.Whole, *out
	if *quick {
		sizes, dir = modes.Quick, ""
	}
	if err := run(sizes, dir); err != nil {
		fmt.Fprintln(os.Stderr, "modes:", err)
		os.Exit(1)
	}
}

// run measures and prints. It writes the documentation unless dir is empty.
func run(sizes modes.Sizes, dir string) error {
	began := time.Now()
	figures, err := modes.Measure(sizes, func(step string) {
		fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(began).Seconds(), step)
	})
	if len(figures.Attacks) > 0 {
		_, _ = os.Stdout.Write(figures.Markdown()) // errors are reported below
	}
	if err != nil || dir == "" {
		return err
	}
	return document(figures, dir)
}

// document writes the figures into the page, and the charts beside it.
func document(figures modes.Figures, dir string) error {
	name := filepath.Join(dir, "modes.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if page, err = figures.Rewrite(page); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(name, page, 0o644); err != nil {
		return err
	}
	for chart, content := range figures.Charts() {
		if err := os.WriteFile(filepath.Join(dir, chart), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

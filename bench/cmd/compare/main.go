// Command compare runs weir beside other Go limiters and tells how they compare:
//
//	go run -C bench ./cmd/compare [-quick] [-json] [-run regexp] [-out dir] [-cpuprofile file]
//
// It prints tables, or with -json one object per line. A full run also writes
// benchmarks.md and its charts into the documentation. Timing never fails: a
// goal that is missed is marked, and the exit code is 0. It is 1 if a limiter
// answered what it should not have.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/report"
	"github.com/weirlimit/weir/bench/internal/services"
)

var (
	full  = harness.Settings{Rounds: 25, PerRun: 60 * time.Millisecond}
	quick = harness.Settings{Rounds: 7, PerRun: 30 * time.Millisecond}
)

// options are the command line.
type options struct {
	quick, json bool
	run         string
	out         string
	cpuProfile  string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "measure for a minute or two, with fewer keys and shorter runs, and write no documentation")
	flag.BoolVar(&o.json, "json", false, "print one JSON object per line, and write no documentation")
	flag.StringVar(&o.run, "run", "", "measure only the cases and surveys whose name matches this `regexp`, and write no documentation")
	flag.StringVar(&o.out, "out", filepath.Join("..", "docs"), "write benchmarks.md and its charts into this `directory`")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "compare: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	if err := compare(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(o options) error {
	settings, x := full, wholeExtent
	if o.quick {
		settings, x = quick, quickExtent
	}
	parts, err := selected(allParts(x), o.run)
	if err != nil {
		return err
	}
	sections, err := profiled(o.cpuProfile, func() ([]report.Section, error) { return measure(parts, settings) })
	if err != nil {
		return err
	}
	machine, err := thisMachine()
	if err != nil {
		return err
	}
	r := &report.Report{Machine: machine, Date: time.Now(), Settings: settings, Sections: sections}
	if o.json {
		return r.WriteJSON(os.Stdout)
	}
	if err := r.WriteText(os.Stdout); err != nil {
		return err
	}
	if o.quick || o.run != "" {
		return nil
	}
	return document(r, o.out)
}

// thisMachine adds to the versions of this program's modules those of the peers that are
// programs of their own.
func thisMachine() (report.Machine, error) {
	m := report.ThisMachine()
	version, err := services.RatelimitVersion()
	if err != nil {
		return m, err
	}
	m.Modules[services.Ratelimit] = version
	return m, nil
}

// progress returns a function that replaces the last line of a terminal. It does
// nothing if the file is none.
func progress(f *os.File) func(line string) {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}
	}
	return func(line string) { fmt.Fprintf(f, "\r\x1b[K%s", line) }
}

// profiled runs f under the CPU profiler if there is a file to write to.
func profiled(file string, f func() ([]report.Section, error)) (sections []report.Section, err error) {
	if file == "" {
		return f()
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// document writes the page and its charts.
func document(r *report.Report, dir string) error {
	if err := writeFile(filepath.Join(dir, "benchmarks.md"), r.WriteMarkdown); err != nil {
		return err
	}
	for _, s := range r.Sections {
		if !s.Measured() {
			continue
		}
		chart := func(w io.Writer) error { return r.WriteSVG(w, s) }
		if err := writeFile(filepath.Join(dir, s.Chart), chart); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	return write(f)
}

package cli

import (
	"errors"
	"io"
	"log/slog"
)

// logFormat is the value of --log-format. It is a pflag.Value.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

func (f *logFormat) String() string { return string(*f) }

// Type returns what help calls the value.
func (f *logFormat) Type() string { return "format" }

// Set is called with what the user gave.
func (f *logFormat) Set(s string) error {
	switch format := logFormat(s); format {
	case logText, logJSON:
		*f = format
		return nil
	}
	return errors.New("must be text or json")
}

func (f *logFormat) logger(w io.Writer) *slog.Logger {
	if *f == logJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
